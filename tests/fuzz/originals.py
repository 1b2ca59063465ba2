"""Small right inputs of every kind, which the fuzzer then damages; nothing here imports torch.

Each function returns name -> content of a folder.
"""

import gzip
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.made_runs import TASKS, made_run
from tests.made_sweeps import RATES, made_sweep

Tree = dict[str, bytes]

WORDS = (
    "good",
    "bad",
    "film",
    "food",
    "not",
    "very",
    "the",
    "a",
    "was",
    "it",
    "fine",
    "poor",
    "dull",
    "bright",
)
HIDDEN = 16
LAYERS = 2
HEADS = 2
INNER = 24
POSITIONS = 64


def vocabulary() -> list[str]:
    """Special tokens, letters, their continuations and a few words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    return [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *WORDS,
    ]


def model() -> Tree:
    """A BERT of 2 layers x 16 with random weights, as `save_pretrained` lays it out."""
    tokens = vocabulary()
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(tokens),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "pad_token_id": 0,
    }
    special = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": POSITIONS,
    }
    settings |= {f"{name}_token": token for name, token in special.items()}
    return {
        "config.json": json.dumps(config, indent=1).encode(),
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps(settings, indent=1).encode(),
        "vocab.txt": "".join(f"{token}\n" for token in tokens).encode(),
        "model.safetensors": save(_weights(len(tokens)), metadata={"format": "pt"}),
    }


def _weights(tokens: int) -> dict[str, "np.ndarray[Any, np.dtype[np.float32]]"]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (tokens, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }

    def linear(name: str, inner: int, outer: int) -> None:
        shapes[f"{name}.weight"] = (outer, inner)
        shapes[f"{name}.bias"] = (outer,)

    def norm(name: str) -> None:
        shapes[f"{name}.LayerNorm.weight"] = shapes[f"{name}.LayerNorm.bias"] = (HIDDEN,)

    norm("embeddings")
    for layer in (f"encoder.layer.{i}" for i in range(LAYERS)):
        for name in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{name}", HIDDEN, HIDDEN)
        linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output")
        linear(f"{layer}.intermediate.dense", HIDDEN, INNER)
        linear(f"{layer}.output.dense", INNER, HIDDEN)
        norm(f"{layer}.output")
    linear("pooler.dense", HIDDEN, HIDDEN)
    rng = np.random.default_rng(0)
    return {
        name: (1 if "LayerNorm.weight" in name else 0)
        + rng.normal(0, 0.05, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def run(task: str, n: int = 24) -> Tree:
    """A finished run folder, written by hand, without weights."""
    lines, primary = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        return read_tree(made_run(Path(folder) / "run", lines(n), task=task, primary=primary))


def sweep() -> Tree:
    """A sweep of three settings with two seeds each."""
    with tempfile.TemporaryDirectory() as folder:
        return read_tree(made_sweep(Path(folder) / "sweep", RATES, (0.7, 0.8, 0.75), seeds=2, n=20))


def read_tree(folder: Path) -> Tree:
    """What is in a folder, by relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows(task: str) -> list[dict[str, Any]]:
    """Sixteen rows as a JSON Lines file has them."""
    texts = [f"the {WORDS[i % 14]} film was {WORDS[(5 * i) % 14]} {i}" for i in range(16)]
    context = "The film was made in Rome. It was very fine and bright."
    if task == "text-regression":
        return [
            {"text": text, "pair": "it was fine", "label": (i % 6) * 0.8}
            for i, text in enumerate(texts)
        ]
    if task == "token-classification":
        tags = ["O", "B-FEEL", "B-THING", "O", "I-FEEL", "O"]
        return [{"words": text.split(), "tags": tags} for text in texts]
    if task == "multiple-choice":
        return [
            {"context": text, "choices": ["fine", "dull", "poor"], "label": i % 3}
            for i, text in enumerate(texts)
        ]
    if task == "question-answering":
        answer = {"text": ["Rome"], "answer_start": [context.index("Rome")]}
        return [
            {"id": f"q{i}", "question": f"Where, {i}?", "context": context, "answers": answer}
            for i in range(16)
        ]
    return [
        {"text": text, "label": ("pos", "neg")[i % 2], "source": "ab"[i % 2]}
        for i, text in enumerate(texts)
    ]


def as_jsonl(lines: "list[dict[str, Any]]") -> bytes:
    """JSON Lines."""
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_table(lines: "list[dict[str, Any]]", separator: str = ",") -> bytes:
    """CSV or TSV with a header."""
    table = [separator.join(lines[0])]
    for line in lines:
        cells = [str(value) for value in line.values()]
        table.append(separator.join(cells))
    return ("\n".join(table) + "\n").encode()


def as_parquet(lines: "list[dict[str, Any]]") -> bytes:
    """Parquet."""
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(lines), written)
    return written.getvalue()


def as_conll(lines: "list[dict[str, Any]]") -> bytes:
    """Word and tag by line, a blank line after each sentence."""
    return "\n".join(
        "".join(f"{word} {tag}\n" for word, tag in zip(line["words"], line["tags"], strict=True))
        for line in lines
    ).encode()


def as_conllu(lines: "list[dict[str, Any]]") -> bytes:
    """CoNLL-U with the tag as the part of speech."""
    sentences = []
    for number, line in enumerate(lines):
        words = [
            f"{i}\t{word}\t_\tNOUN\t_\t_\t0\t_\t_\t_\n"
            for i, word in enumerate(line["words"], start=1)
        ]
        sentences.append(
            f"# sent_id = {number}\n# text = {' '.join(line['words'])}\n" + "".join(words)
        )
    return "\n".join([*sentences, ""]).encode()


def as_squad(lines: "list[dict[str, Any]]") -> bytes:
    """SQuAD's JSON."""
    answers = [{"text": "Rome", "answer_start": lines[0]["context"].index("Rome")}]
    questions = [
        {"id": line["id"], "question": line["question"], "answers": answers} for line in lines
    ]
    paragraphs = [{"context": lines[0]["context"], "qas": questions}]
    return json.dumps(
        {"version": "1.1", "data": [{"title": "film", "paragraphs": paragraphs}]}
    ).encode()


def data_files() -> Mapping[str, tuple[str, bytes]]:
    """Name of a file -> its task and content, one for each layout that a reader knows."""
    texts = rows("text-classification")
    tags = rows("token-classification")
    requests = rows("question-answering")
    return {
        "rows.csv": ("text-classification", as_table(texts)),
        "rows.tsv": ("text-classification", as_table(texts, "\t")),
        "rows.jsonl": ("text-classification", as_jsonl(texts)),
        "rows.parquet": ("text-classification", as_parquet(texts)),
        "rows.csv.gz": ("text-classification", gzip.compress(as_table(texts), mtime=0)),
        "scores.csv": ("text-regression", as_table(rows("text-regression"))),
        "scores.jsonl": ("text-regression", as_jsonl(rows("text-regression"))),
        "tags.conll": ("token-classification", as_conll(tags)),
        "tags.conllu": ("token-classification", as_conllu(tags)),
        "tags.jsonl": ("token-classification", as_jsonl(tags)),
        "choices.jsonl": ("multiple-choice", as_jsonl(rows("multiple-choice"))),
        "questions.json": ("question-answering", as_squad(requests)),
        "questions.jsonl": ("question-answering", as_jsonl(requests)),
    }


RECIPE = b"""\
# A recipe with something in every section.
name: mine
task: text-classification
data:
  train_file: rows.csv
  validation_fraction: 0.25
  text_column: text
  label_column: label
model:
  name: tiny/
  max_length: 32
  dropout: 0.0
training:
  epochs: 2
  batch_size: 8
  seed: 7
optimizer:
  learning_rate: 5.0e-3
evaluation:
  bootstrap_resamples: 100
  slice_columns: [source]
runtime:
  precision: fp32
  device: cpu
  threads: 1
"""

DATASETS = b"""\
mine:
  task: text-classification
  description: "short opinions"
  columns: {text: text, label: label}
  labels: [neg, pos]
  metrics: [accuracy]
  splits: {train: rows.csv, validation: rows.csv, test: {files: rows.csv, labelled: false}}
"""

GRID = b"""\
training.epochs: [1, 2]
optimizer.learning_rate: [5.0e-3, 1.0e-3]
"""
