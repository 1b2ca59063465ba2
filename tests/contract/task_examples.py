"""Eight rows for each task, and how plain transformers is asked about them.

The rows are to be learned by heart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from bertctl.data.rows import Rows
from bertctl.inference.engine import Engine
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.base import Features, Task

TEXTS = (
    "good film",
    "bad film",
    "the food was good",
    "the food was not good",
    "very fine",
    "very poor indeed it was",
    "a bright film, was it not?",
    "dull",
)

Line = Mapping[str, Any]
Agrees = Callable[[torch.nn.Module, Any, Line], None]


@dataclass(frozen=True)
class Example:
    """What the contract needs to know of a task.

    Attributes:
        rows: as they stand in a JSONL file.
        floor: least value of the primary metric once they are learned by heart.
        texts: columns that a prediction line repeats.
        agrees: asserts that a prediction line is what plain transformers says, with its own
            tokenizer and no batch.
        again: recipe fields that name a prediction file's columns, to score it again.
        settings: further recipe fields.
        passes: over the rows until they are learned by heart.
        explained: whether an answer rests on one line of input, whose words can be told.
    """

    rows: tuple[dict[str, Any], ...]
    floor: float
    texts: tuple[str, ...]
    agrees: Agrees
    again: Mapping[str, object]
    settings: Mapping[str, object] = field(default_factory=dict)
    passes: int = 35
    explained: bool = True


def class_agrees(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """Probabilities by label name, and the likeliest label."""
    with torch.inference_mode():
        logits = network(**tokenizer(line["text"], return_tensors="pt")).logits[0]
    names = network.config.id2label
    theirs = dict(zip(names.values(), logits.softmax(0).tolist(), strict=True))
    assert line["probabilities"] == pytest.approx(theirs, abs=1e-5)
    assert line["prediction"] == names[int(logits.argmax())]


def score_agrees(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """The one number of the head."""
    with torch.inference_mode():
        logits = network(**tokenizer(line["text"], return_tensors="pt")).logits
    assert line["prediction"] == pytest.approx(logits.item(), abs=1e-4)


def cosine_agrees(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """The cosine of the means of both texts' vectors."""

    def mean_vector(text: str) -> torch.Tensor:
        inputs = tokenizer(text, return_tensors="pt")
        return network(**inputs).last_hidden_state[0].mean(dim=0)

    with torch.inference_mode():
        first = mean_vector(line["text"])
        second = mean_vector(line["pair"])
    cosine = torch.cosine_similarity(first, second, dim=0)
    assert line["prediction"] == pytest.approx(cosine.item(), abs=1e-5)


def choice_agrees(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """All choices of a row as one example of (1, choices, T), the way of the model cards."""
    choices = line["choices"]
    encoded = tokenizer(
        [line["context"]] * len(choices), choices, padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        logits = network(**{name: tensor.unsqueeze(0) for name, tensor in encoded.items()}).logits
    assert logits.shape == (1, len(choices))
    assert line["probabilities"] == pytest.approx(logits[0].softmax(0).tolist(), abs=1e-5)
    assert line["prediction"] == int(logits[0].argmax())


def tags_agree(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """The tag of each word's first piece, and the loss as the mean over words."""
    encoded = tokenizer(line["words"], is_split_into_words=True, return_tensors="pt")
    with torch.inference_mode():
        logits = network(**encoded).logits[0]
    first: dict[int, int] = {}
    for position, word in enumerate(encoded.word_ids(0)):
        if word is not None:
            first.setdefault(word, position)
    of_words = logits[[first[word] for word in range(len(line["words"]))]]
    theirs = ["O"]
    for number in of_words.argmax(1):
        tag = network.config.id2label[int(number)]
        # An entity that begins with I- is written with B-, as IOB2 has it.
        begins = tag.startswith("I-") and theirs[-1][2:] != tag[2:]
        theirs.append(f"B-{tag[2:]}" if begins else tag)
    assert line["prediction"] == theirs[1:]
    gold = torch.tensor([network.config.label2id[tag] for tag in line["gold"]])
    assert line["loss"] == pytest.approx(
        torch.nn.functional.cross_entropy(of_words, gold).item(), abs=1e-4
    )


def answer_agrees(network: torch.nn.Module, tokenizer: Any, line: Line) -> None:
    """The span with the highest sum of start and end, at most 30 tokens long.

    It is found by looking at every one.
    """
    encoded = tokenizer(
        line["question"], line["context"], return_offsets_mapping=True, return_tensors="pt"
    )
    offsets = encoded.pop("offset_mapping")[0].tolist()
    inner = [i for i, sequence in enumerate(encoded.sequence_ids(0)) if sequence == 1]
    with torch.inference_mode():
        output = network(**encoded)
    start = output.start_logits[0]
    end = output.end_logits[0]
    spans = [(float(start[i] + end[j]), i, j) for i in inner for j in inner if i <= j < i + 30]
    # After a few steps neighbours may be as likely as each other, to the last bits.
    texts = {
        line["context"][offsets[i][0] : offsets[j][1]].strip()
        for s, i, j in spans
        if s > max(spans)[0] - 2e-5
    }
    assert line["prediction"].strip() in texts


def _tagged(text: str, tags: str) -> dict[str, Any]:
    names = {".": "O", "T": "B-THING", "t": "I-THING", "F": "B-FEEL"}
    return {"words": text.split(), "tags": [names[tag] for tag in tags]}


def _asked(question: str, context: str, answer: str) -> dict[str, Any]:
    return {
        "question": question,
        "context": context,
        "answers": {"text": [answer], "answer_start": [context.index(answer)]},
    }


def _chosen(context: str, label: int, *choices: str) -> dict[str, Any]:
    return {"context": context, "choices": list(choices), "label": label}


EXAMPLES: Mapping[str, Example] = {
    "text-classification": Example(
        rows=tuple({"text": t, "label": y} for t, y in zip(TEXTS, ["pos", "neg"] * 4, strict=True)),
        floor=1.0,
        texts=("text",),
        agrees=class_agrees,
        again={"data.label_column": "gold", "data.text_column": "text"},
    ),
    "text-regression": Example(
        rows=tuple(
            {"text": t, "label": y}
            for t, y in zip(TEXTS, [4.5, 0.5, 4.0, 1.0, 5.0, 0.0, 4.25, 0.75], strict=True)
        ),
        floor=0.95,
        texts=("text",),
        agrees=score_agrees,
        again={"data.label_column": "gold", "data.text_column": "text"},
        passes=150,
    ),
    "sentence-embeddings": Example(
        rows=tuple(
            {"text": text, "pair": pair, "label": score}
            for text, pair, score in (
                ("good film", "bad film", 1.0),
                ("good film", "the food was good", 3.5),
                ("very fine", "a bright film, was it not?", 4.0),
                ("dull", "very poor indeed it was", 4.5),
                ("dull", "very fine", 0.0),
                ("a bright film, was it not?", "good film", 5.0),
                ("the food was good", "the food was not good", 2.0),
                ("bad film", "dull", 3.0),
            )
        ),
        floor=0.9,
        texts=("text", "pair"),
        agrees=cosine_agrees,
        again={"data.label_column": "gold", "data.text_column": "text", "data.pair_column": "pair"},
        settings={
            "sentence_embeddings.loss": "cosine",
            "sentence_embeddings.score_range": [0.0, 5.0],
        },
        passes=70,
        explained=False,
    ),
    "multiple-choice": Example(
        rows=(
            _chosen("the film was good", 0, "it was fine", "it was dull"),
            _chosen("the food was bad", 1, "very fine", "very poor", "bright"),
            _chosen("not a good film", 2, "bright", "fine", "dull", "good"),
            _chosen("", 1, "a film was the food", "it was a film"),
            _chosen("a bright film, was it not?", 0, "very bright", "dull", "poor food"),
            _chosen("dull", 3, "good", "very good", "fine indeed it was", "very dull"),
            _chosen("the food was not good", 1, "good food", "bad food"),
            _chosen("was it a good film?", 2, "it was food", "the dull", "it was a very good film"),
        ),
        floor=1.0,
        texts=("context", "choices"),
        agrees=choice_agrees,
        again={
            "data.label_column": "gold",
            "data.text_column": "context",
            "data.choice_columns": ["choices"],
        },
    ),
    "token-classification": Example(
        rows=(
            _tagged("the good film was fine", ".FT.F"),
            _tagged("bad film", "FT"),
            _tagged("the food was good", ".T.F"),
            _tagged("it was not the film food", "....Tt"),
            _tagged("very poor food , a dull film", ".FT..FT"),
            _tagged("was it a bright film ?", "...FT."),
            _tagged("not very", ".."),
            _tagged("film food film", "Ttt"),
        ),
        floor=1.0,
        texts=("words",),
        agrees=tags_agree,
        again={"data.label_column": "gold", "data.text_column": "words"},
    ),
    "question-answering": Example(
        rows=(
            _asked("what was good?", "the film was good and the food was bad", "film"),
            _asked("what was bad?", "it was very bad food , not very good", "food"),
            _asked("how was it?", "the film was very fine indeed", "very fine"),
            _asked("what was fine?", "the film was very fine indeed", "film"),
            _asked("was it dull?", "not dull", "not dull"),
            _asked("was it poor?", "it was a very poor film , a dull film", "very poor"),
            _asked("which film?", "a bright film was not the dull film", "bright"),
            _asked("what was not?", "the food was not good", "food"),
        ),
        floor=1.0,
        texts=("question", "context"),
        agrees=answer_agrees,
        again={"data.label_column": "gold"},
        settings={
            "question_answering.doc_stride": 16,
            "question_answering.max_question_length": 12,
        },
    ),
}
"""Task name -> its example."""


@dataclass(frozen=True)
class Answered:
    """What a model says of some rows.

    Attributes:
        outputs: what the task keeps of each slot.
        answers: one a row, as decoded.
        losses: (U,) of each unit.
    """

    outputs: Mapping[str, np.ndarray]
    answers: list[dict[str, Any]]
    losses: np.ndarray


def ask(
    engine: Engine,
    task: Task,
    features: Features,
    rows: Rows,
    *,
    batch_size: int,
    padding: Padding | None = None,
) -> Answered:
    """Answers in batches of units as they stand, padded as wide and on the side asked for."""
    outputs: dict[str, np.ndarray] = {}
    split = features
    features = task.scored(features)
    losses = np.zeros(len(features), dtype=np.float32)
    windows = np.arange(len(features))
    objective = task.objective(padding or engine.padding)
    with engine.backend.inference():
        for first in range(0, len(windows), batch_size):
            indices = windows[first : first + batch_size]
            batch = objective.batch(features, indices, WindowRandom(0))
            logits = objective.forward(engine.backend, batch)
            of_windows = (
                objective.window_losses(logits, batch) if batch.labels is not None else None
            )
            if of_windows is not None:
                losses[indices] = of_windows.numpy()
            slots = features.prediction_indices(indices)
            for name, values in task.collect_outputs(logits, batch, features, indices).items():
                outputs.setdefault(
                    name, np.zeros((features.num_predictions, *values.shape[1:]), values.dtype)
                )[slots] = values
    of_rows = task.row_losses(outputs, split)  # of tasks whose windows have none
    return Answered(
        outputs, task.decode(outputs, split, rows), losses if of_rows is None else of_rows
    )


def assert_same(ours: Answered, theirs: Answered) -> None:
    """The same answers (numbers to 2e-5) and the same losses."""
    np.testing.assert_allclose(ours.losses, theirs.losses, atol=2e-5, rtol=1e-4)
    assert len(ours.answers) == len(theirs.answers)
    for mine, other in zip(ours.answers, theirs.answers, strict=True):
        assert_alike(_without_ties(mine), _without_ties(other))


def _without_ties(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Of the runners-up only the probabilities.

    After a few steps neighbours are as likely as each other.
    """
    runners_up = (
        {"n_best": [entry["probability"] for entry in answer["n_best"]]}
        if "n_best" in answer
        else {}
    )
    return {**answer, **runners_up}


def assert_alike(ours: Any, theirs: Any) -> None:
    """Equal, numbers to 2e-5, whatever they stand in."""
    if isinstance(ours, Mapping):
        assert set(ours) == set(theirs)
        for name, value in ours.items():
            assert_alike(value, theirs[name])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for entry, other in zip(ours, theirs, strict=True):
            assert_alike(entry, other)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=2e-5, rel=1e-4)
    else:
        assert ours == theirs
