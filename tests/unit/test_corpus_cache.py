"""What pretraining reads.

Packed once, opened afterwards, whoever was killed or came at the same time.
"""

import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.errors import BertctlError, DataError, ExitCode, UnavailableError
from bertctl.progress import Listener
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.training.corpus_cache import CorpusData, read_corpus
from tests.nursery import Child, Nursery


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer("minilm").tokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Heard(Listener):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @property
    def packed(self) -> bool:
        return any("is packed, once" in text for text in self.said)


def _corpus(path: Path, documents: int = 60, word: str = "number") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (
        f"Text {word} {i} begins.\nIt goes on with {word} {i * i}.\n" for i in range(documents)
    )
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def _recipe(*corpora: Path, **data: object) -> Recipe:
    section = {
        "corpus": list(map(str, corpora)),
        "allow_duplicates": data.pop("allow_duplicates", False),
    }
    return Recipe.model_validate({"task": "pretraining", "pretraining": section, "data": data})


def _texts(data: CorpusData, tokenizer: Tokenizer) -> list[str]:
    """The training documents, as far as ids tell."""
    ends = data.train.sentences[data.train.documents].tolist()
    texts = []
    for start, end in itertools.pairwise(ends):
        ids = data.train.ids[start:end].tolist()
        texts.append(tokenizer.decode(ids))
    return texts


def test_texts_are_on_one_side(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = read_corpus(
        _recipe(_corpus(tmp_path / "a.txt"), _corpus(tmp_path / "b.txt", word="day")), tokenizer
    )
    held = data.validation.columns["text"]
    assert data.names == ("a", "b")
    assert len(held) == 12
    assert all(id.rpartition(":")[0] in ("a/a.txt", "b/b.txt") for id in data.validation.ids)
    trained = _texts(data, tokenizer)
    assert len(trained) == data.train.corpora[-1] == 108
    assert ["day" in text for text in trained] == [i >= data.train.corpora[1] for i in range(108)]
    texts = {text.lower().replace(".", " .").replace("\n", " ") for text in held}
    assert not texts & set(trained)
    assert held[0].count("\n") == 1


def test_a_corpus_is_packed_once_wherever_it_lies(
    tmp_path: Path, cache: Path, tokenizer: Tokenizer
) -> None:
    first = Heard()
    again = Heard()
    elsewhere = Heard()
    corpus = read_corpus(_recipe(_corpus(tmp_path / "x" / "a.txt")), tokenizer, listener=first)
    two = read_corpus(_recipe(tmp_path / "x" / "a.txt"), tokenizer, listener=again)
    os.utime(_corpus(tmp_path / "y" / "a.txt"), (1, 1))
    three = read_corpus(_recipe(tmp_path / "y" / "a.txt"), tokenizer, listener=elsewhere)
    assert [listener.packed for listener in (first, again, elsewhere)] == [True, False, False]
    assert corpus.notes == two.notes == three.notes
    assert set(corpus.notes) <= set(again.said)
    assert corpus.hashes == two.hashes == three.hashes
    assert corpus.validation == two.validation == three.validation
    assert corpus.train.ids.tolist() == three.train.ids.tolist()
    stored = b"".join(file.read_bytes() for file in sorted(cache.rglob("*")) if file.is_file())
    assert str(tmp_path).encode() not in stored


@pytest.mark.parametrize("change", ["text", "fraction", "tokenizer", "encoding", "allowed"])
def test_what_decides_the_ids_decides_the_key(
    tmp_path: Path, tokenizer: Tokenizer, change: str
) -> None:
    path = _corpus(tmp_path / "a.txt")
    listener = Heard()
    before = read_corpus(_recipe(path), tokenizer)
    if change == "text":
        path.write_text(path.read_text() + "\nOne more.\n")
    fields = {"fraction": {"validation_fraction": 0.2}, "encoding": {"encoding": "latin-1"}}
    other = Tokenizer.from_str(tokenizer.to_str())
    other.add_tokens(["goes on"] if change == "tokenizer" else [])
    recipe = _recipe(path, **fields.get(change, {}), allow_duplicates=change == "allowed")
    after = read_corpus(recipe, other, listener=listener)
    assert listener.packed
    assert (before.hashes == after.hashes) == (change == "tokenizer")


def test_a_validation_file_is_read_as_it_is(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"text": "One. Two."}\n{"text": " "}\n{"text": "Three"}\n')
    data = read_corpus(_recipe(_corpus(tmp_path / "a.txt"), validation_file=str(path)), tokenizer)
    assert data.validation.columns["text"] == ("One.\nTwo.", "Three")
    assert list(data.validation.ids) == ["own.jsonl:1", "own.jsonl:3"]
    assert len(data.train.documents) == 61
    path.write_text('{"text": " "}\n')
    with pytest.raises(DataError, match="holds no text"):
        read_corpus(_recipe(tmp_path / "a.txt", validation_file=str(path)), tokenizer)


def _gone(path: Path) -> Path:
    return path.with_name("gone.txt")


def _one(path: Path) -> Path:
    path.write_text("One document. Of two sentences.")
    return path


def _repeated(path: Path) -> Path:
    path.write_text("One line of text.\nAnother line of text.\n" * 100)
    return path


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(_gone, ExitCode.UNAVAILABLE), (_one, ExitCode.DATA), (_repeated, ExitCode.DATA)],
)
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, cache: Path, tokenizer: Tokenizer, spoil: Callable[[Path], Path], code: ExitCode
) -> None:
    path = spoil(_corpus(tmp_path / "a.txt"))
    with pytest.raises(BertctlError) as refused:
        read_corpus(_recipe(path), tokenizer)
    assert refused.value.exit_code == code
    assert not [
        file
        for file in cache.rglob("*")
        if file.name not in ("corpora", ".lock") and file.is_file()
    ]


def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = _corpus(tmp_path / "a.txt")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads every file")
    with pytest.raises(UnavailableError, match=r"a\.txt"):
        read_corpus(_recipe(path), tokenizer)


def test_damaged_notes_are_refused_with_what_to_delete(
    tmp_path: Path, cache: Path, tokenizer: Tokenizer
) -> None:
    recipe = _recipe(_corpus(tmp_path / "a.txt"))
    read_corpus(recipe, tokenizer)
    (notes,) = cache.rglob("corpus.json")
    notes.write_bytes(b"")
    with pytest.raises(UnavailableError, match="no JSON") as caught:
        read_corpus(recipe, tokenizer)
    assert caught.value.remedy == f"Delete {notes.parent}: it is made anew."


def test_repeated_lines_are_told_at_every_start_where_they_are_allowed(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*(f"text number {i}" for i in range(200)), *["A line of text"] * 9]))
    for _ in range(2):
        listener = Heard()
        data = read_corpus(_recipe(path, allow_duplicates=True), tokenizer, listener=listener)
        assert any("8 of 209 lines (3.8 %)" in text for text in (*listener.said, *data.notes))
    with pytest.raises(DataError, match="8 of 209 lines"):
        read_corpus(_recipe(path), tokenizer)


READS = """
import json, sys
from bertctl.config.schema import Recipe
from bertctl.progress import Listener
from bertctl.tokenization import packing
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.training.corpus_cache import read_corpus

packing._CHARACTERS = 200_000

class Shown(Listener):
    def advance(self, phase, done, total, figures=None, *, share=None):
        if phase == "packing":
            print(phase, done, flush=True)

recipe = Recipe.model_validate_json(sys.argv[1])
data = read_corpus(recipe, open_tokenizer("minilm").tokenizer, listener=Shown())
print(json.dumps(data.hashes))
"""


def _started(nursery: Nursery, recipe: Recipe) -> Child:
    return nursery.start(
        ["-c", READS, recipe.model_dump_json()], cwd=Path("/"), env=os.environ, kind="light"
    )


def _files(cache: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(cache)): file.read_bytes()
        for file in cache.rglob("*")
        if file.is_file()
    }


def test_killed_while_it_packs_it_is_made_anew(
    nursery: Nursery, tmp_path: Path, cache: Path, tokenizer: Tokenizer
) -> None:
    recipe = _recipe(_corpus(tmp_path / "a.txt", documents=6_000))
    process = _started(nursery, recipe)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("packing")  # the first of two batches
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(cache.rglob(".bertctl-*.part"))
    read_corpus(recipe, tokenizer)
    after = _files(cache)
    shutil.rmtree(cache)
    read_corpus(recipe, tokenizer)
    assert after == _files(cache)
    assert len(after) == 7


def test_two_processes_make_it_once(
    nursery: Nursery, tmp_path: Path, cache: Path, tokenizer: Tokenizer
) -> None:
    recipe = _recipe(_corpus(tmp_path / "a.txt", documents=2_000))
    processes = [_started(nursery, recipe), _started(nursery, recipe)]
    message = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(any(line.startswith("packing") for line in lines) for lines in message) == 1
    assert (
        json.loads(message[0][-1])
        == json.loads(message[1][-1])
        == read_corpus(recipe, tokenizer).hashes
    )
    assert len(_files(cache)) == 7
