"""The scheme of answers, in files of hundreds of sentences.

Conlleval's scores of what `predict` writes.
"""

import json
import random
from itertools import pairwise

import pytest

from bertctl.data.tag_schemes import write_tags

pytestmark = pytest.mark.in_process

TYPES = {"good": "MOOD", "bad": "TASTE", "dull": "MOOD", "fine": "TASTE"}
PLAIN = ["the", "film", "was", "it", "a", "food"]
SCHEMES = [
    "IOB1",
    *(pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("mixed", "IOB2", "BIOES")),
]


def sentences(seed: int, count: int, scheme: str) -> list[list[tuple[str, str]]]:
    """Entities of one to three words of a kind, some of them side by side.

    `mixed`: every third sentence is in IOB1.
    """
    rng = random.Random(seed)  # noqa: S311
    results = []
    for number in range(count):
        words: list[str] = []
        spans = []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.7:
                words += rng.choices(PLAIN, k=rng.randint(1, 3))
            word = rng.choice(list(TYPES))
            length = rng.randint(1, 3)
            kind = TYPES[word] if rng.random() < 0.9 else "OTHER"  # some cannot be learned
            spans.append((kind, len(words), len(words) + length))
            words += [word] * length
        sentence_scheme = scheme
        if scheme == "mixed":
            sentence_scheme = "IOB1" if number % 3 == 0 else "IOB2"
        tags = write_tags(spans, len(words), sentence_scheme)
        results.append(list(zip(words, tags, strict=True)))
    return results


def columns(expected):
    return "".join(
        "".join(f"{word} {tag}\n" for word, tag in sentence) + "\n" for sentence in expected
    )


def conlleval(gold, predicted):
    """Accuracy, precision, recall and F1 as conlleval's Python descendants count.

    By chunks that begin and end.
    """
    letters = {"L": "E", "U": "S"}

    def parts(tag):
        prefix, _, kind = tag.partition("-")
        return letters.get(prefix, prefix), kind

    def ends(entry, two):
        (before, type_before) = entry
        (tag, kind) = two
        return (
            before in ("E", "S")
            or (before in ("B", "I") and tag in ("B", "S", "O"))
            or (before not in ("O", ".") and type_before != kind)
        )

    def begins(entry, two):
        (before, type_before) = entry
        (tag, kind) = two
        return (
            tag in ("B", "S")
            or (before in ("E", "S", "O") and tag in ("E", "I"))
            or (tag not in ("O", ".") and type_before != kind)
        )

    def chunks(tags):
        actual = set()
        start = None
        steps = [("O", ""), *map(parts, tags), ("O", "")]
        for place, (entry, two) in enumerate(pairwise(steps)):
            if start is not None and ends(entry, two):
                actual.add((start, place, entry[1]))
                start = None
            if begins(entry, two):
                start = place
        return actual

    words = sum(map(len, gold))
    right = sum(
        a == b for g, p in zip(gold, predicted, strict=True) for a, b in zip(g, p, strict=True)
    )
    pairs = [(chunks(g), chunks(p)) for g, p in zip(gold, predicted, strict=True)]
    others = sum(len(g) for g, _ in pairs)
    answered = sum(len(p) for _, p in pairs)
    both = sum(len(g & p) for g, p in pairs)
    return [right / words, both / answered, both / others, 2 * both / (others + answered)]


@pytest.fixture(scope="module")
def iob1_run(tmp_path_factory, tiny_model, nursery):
    """A run on sentences in IOB1, 3 of whose 3,000 are not, with a seeded sample of them."""
    folder = tmp_path_factory.mktemp("schemes")
    train = sentences(1, 3000, "IOB1")
    train[0][:2] = [("bad", "B-TASTE"), ("the", "O")]
    (folder / "train.conll").write_text(columns(train))
    (folder / "dev.conll").write_text(columns(sentences(2, 50, "IOB1")))
    runs = {}
    for rows, steps in ((500, 160), (3000, 2)):
        done = nursery.run(
            [
                "finetune",
                "token-classification",
                "--train-file",
                "train.conll",
                "--validation-file",
                "dev.conll",
                "--model",
                str(tiny_model),
                "-o",
                str(folder / f"run{rows}"),
                "--max-train-rows",
                str(rows),
                "--max-length",
                "40",
                "--learning-rate",
                "5e-3",
                "--set",
                f"training.max_steps={steps}",
                "--checkpoint-every",
                "off",
                "--set",
                "evaluation.bootstrap_resamples=100",
                "--precision",
                "fp32",
            ],
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        runs[rows] = folder / f"run{rows}", done.stderr
    return runs


def test_the_scheme_is_that_of_the_whole_file_and_its_exceptions_are_said(iob1_run):
    for path, message in iob1_run.values():
        assert json.loads((path / "model/config.json").read_text())["tag_scheme"] == "IOB1"
        assert "tags in IOB1, but of " in message
        assert "1 times not IOB1, first B-TASTE after O" in message


@pytest.mark.parametrize("scheme", SCHEMES)
def test_conlleval_finds_the_metrics_in_the_written_file(bertctl, iob1_run, tmp_path, scheme):
    run, _ = iob1_run[500]
    actual = sentences(3, 300, scheme)
    (tmp_path / "new.conll").write_text(columns(actual))
    done = bertctl(
        "predict",
        run,
        "new.conll",
        "--format",
        "conll",
        "-o",
        "answers.conll",
        "--precision",
        "fp32",
    )
    assert done.returncode == 0, done.stderr
    answers = [
        [line.split("\t")[-1] for line in block.splitlines()]
        for block in (tmp_path / "answers.conll").read_text().strip().split("\n\n")
    ]
    gold = [[tag for _, tag in sentence] for sentence in actual]
    scored = bertctl(
        "evaluate", run, "--file", "new.conll", "-o", "scores", "--json", "--precision", "fp32"
    )
    assert scored.returncode == 0, scored.stderr
    metrics = json.loads(scored.stdout)["metrics"]["file"]
    names = ["accuracy", "entity_precision", "entity_recall", "entity_f1"]
    values = [metrics[name]["value"] for name in names]
    assert values == conlleval(gold, answers)
    assert 0.3 < values[-1] < 1
    if scheme != "mixed":
        assert f"tags in {scheme}" in done.stderr
    of_types = [metrics[f"entity_f1:{kind}"]["value"] for kind in ("MOOD", "OTHER", "TASTE")]
    assert metrics["entity_f1_macro"]["value"] == pytest.approx(sum(of_types) / 3)
    assert metrics["entity_f1"]["value"] < metrics["entity_f1_relaxed"]["value"] <= 1
    assert (
        metrics["entity_f1_macro"]["low"]
        < metrics["entity_f1_macro"]["value"]
        < metrics["entity_f1_macro"]["high"]
    )
    assert bertctl("report", "scores", "-o", "r.html").returncode == 0
    page = (tmp_path / "r.html").read_text()
    assert all(kind in page for kind in ("wrong boundary", "wrong type", "missed", "invented"))


def test_a_scheme_can_be_asked_for(bertctl, iob1_run, tmp_path, tiny_run):
    run, _ = iob1_run[500]
    done = bertctl(
        "predict",
        run,
        "-",
        "--scheme",
        "bilou",
        "--precision",
        "fp32",
        input="the bad bad was good\n",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["prediction"] == ["O", "B-TASTE", "L-TASTE", "O", "U-MOOD"]
    (tmp_path / "new.conll").write_text(columns(sentences(3, 20, "IOB1")))
    for arguments in ([], ["--scheme", "bioes"]):
        scored = bertctl(
            "evaluate", run, "--file", "new.conll", "-o", "s", "--overwrite", "--json", *arguments
        )
        assert scored.returncode == 0, scored.stderr
        line = json.loads((tmp_path / "s/predictions/file.jsonl").read_text().splitlines()[0])
        gold = {tag[0] for tag in line["gold"]}
        assert gold <= ({"S", "B", "E", "I", "O"} if arguments else {"I", "O", "B"})
        assert ("S" in gold or "E" in gold) == bool(arguments)
    other = bertctl("predict", tiny_run.path, "-", "--scheme", "iob1", input="fine\n")
    assert other.returncode == 2
    assert "token_classification" in other.stderr
