"""Data sets by name: where they are, their columns, label names, splits, metrics and published scores.

A plain table and a look-up. Nothing here imports a library.

Label names stand in the order of the hub's `ClassLabel` feature, so that a model's outputs mean the same everywhere.
Published scores: Devlin et al. 2019 (arXiv 1810.04805), table 1, row BERT_BASE, scored by the GLUE server on the test
splits.
"""

from pathlib import Path

from bertctl.catalog.choice_rows import CHOICE_ROWS
from bertctl.catalog.dataset_row import GLUE_REVISION as GLUE_REVISION
from bertctl.catalog.dataset_row import Columns as Columns
from bertctl.catalog.dataset_row import DatasetRow as DatasetRow
from bertctl.catalog.dataset_row import PublishedScore as PublishedScore
from bertctl.catalog.dataset_row import SplitRow as SplitRow
from bertctl.catalog.question_rows import QUESTION_ROWS
from bertctl.catalog.tagging_rows import TAGGING_ROWS
from bertctl.errors import UsageError
from bertctl.words import did_you_mean


def _glue_splits(
    config: str,
    glue_file: str,
    *,
    train: Columns,
    test: Columns | None = None,
    header: bool = True,
    test_files: tuple[str, ...] = ("test.tsv",),
) -> tuple[SplitRow, ...]:
    """train, dev and test of a GLUE task; `test` only where its columns have other names."""
    unlabelled = Columns(train.text, train.pair)
    return (
        SplitRow("train", f"{config}/train-00000-of-00001.parquet", ("train.tsv",), train, header=header),
        SplitRow("validation", f"{config}/validation-00000-of-00001.parquet", ("dev.tsv",), train, header=header),
        SplitRow(
            "test",
            f"{config}/test-00000-of-00001.parquet",
            test_files,
            test or unlabelled,
            labelled=False,
            glue_file=glue_file,
        ),
    )


_MNLI_COLUMNS = Columns("sentence1", "sentence2", "gold_label")


def _mnli_split(name: str, file: str, glue_file: str = "") -> SplitRow:
    columns = Columns("sentence1", "sentence2") if glue_file else _MNLI_COLUMNS
    hub_file = f"mnli/{name}-00000-of-00001.parquet"
    return SplitRow(name, hub_file, (file,), columns, labelled=not glue_file, glue_file=glue_file)


_SENTENCES = Columns("sentence1", "sentence2", "label")
_NLI_LABELS = ("entailment", "neutral", "contradiction")
_VALIDATION = ("validation",)

_ROWS = (
    DatasetRow(
        name="demo",
        task="text-classification",
        description="900 short opinions, positive or negative, written for bertctl; inside the package",
        columns=Columns("text", None, "label"),
        labels=("negative", "positive"),
        splits=tuple(
            SplitRow(name, "", (f"{name}.csv",), Columns("text", None, "label"))
            for name in ("train", "validation", "test")
        ),
        validation_splits=_VALIDATION,
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="demo",
        hub_repo="",
        hub_revision="",
    ),
    DatasetRow(
        name="cola",
        task="text-classification",
        description="GLUE CoLA: is the sentence good English?",
        columns=Columns("sentence", None, "label"),
        labels=("unacceptable", "acceptable"),
        splits=_glue_splits("cola", "CoLA.tsv", train=Columns("3", None, "1"), test=Columns("sentence"), header=False),
        validation_splits=_VALIDATION,
        metrics=("matthews", "accuracy"),
        primary_metric="matthews",
        folder="CoLA",
        published=(PublishedScore("test", "matthews", 0.521),),
    ),
    DatasetRow(
        name="sst2",
        task="text-classification",
        description="GLUE SST-2: is the phrase from a film review positive or negative?",
        columns=Columns("sentence", None, "label"),
        labels=("negative", "positive"),
        splits=_glue_splits("sst2", "SST-2.tsv", train=Columns("sentence", None, "label")),
        validation_splits=_VALIDATION,
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="SST-2",
        published=(PublishedScore("test", "accuracy", 0.935),),
    ),
    DatasetRow(
        name="mrpc",
        task="text-classification",
        description="GLUE MRPC: do two sentences from the news say the same?",
        columns=_SENTENCES,
        labels=("not_equivalent", "equivalent"),
        splits=_glue_splits(
            "mrpc",
            "MRPC.tsv",
            train=Columns("#1 String", "#2 String", "Quality"),
            test_files=("test.tsv", "msr_paraphrase_test.txt"),
        ),
        validation_splits=_VALIDATION,
        metrics=("f1", "accuracy"),
        primary_metric="f1",
        folder="MRPC",
        positive_label="equivalent",
        published=(PublishedScore("test", "f1", 0.889),),
    ),
    DatasetRow(
        name="stsb",
        task="text-regression",
        description="GLUE STS-B: how alike are two sentences in meaning, from 0 to 5?",
        columns=_SENTENCES,
        labels=(),
        splits=_glue_splits("stsb", "STS-B.tsv", train=Columns("sentence1", "sentence2", "score")),
        validation_splits=_VALIDATION,
        metrics=("spearman", "pearson"),
        primary_metric="spearman",
        folder="STS-B",
        published=(PublishedScore("test", "spearman", 0.858),),
    ),
    DatasetRow(
        name="qqp",
        task="text-classification",
        description="GLUE QQP: do two questions ask the same?",
        columns=Columns("question1", "question2", "label"),
        labels=("not_duplicate", "duplicate"),
        splits=_glue_splits("qqp", "QQP.tsv", train=Columns("question1", "question2", "is_duplicate")),
        validation_splits=_VALIDATION,
        metrics=("f1", "accuracy"),
        primary_metric="f1",
        folder="QQP",
        positive_label="duplicate",
        published=(PublishedScore("test", "f1", 0.712),),
    ),
    DatasetRow(
        name="mnli",
        task="text-classification",
        description="GLUE MNLI: does the second sentence follow from the first, contradict it, or neither?",
        columns=Columns("premise", "hypothesis", "label"),
        labels=_NLI_LABELS,
        splits=(
            _mnli_split("train", "train.tsv"),
            _mnli_split("validation_matched", "dev_matched.tsv"),
            _mnli_split("validation_mismatched", "dev_mismatched.tsv"),
            _mnli_split("test_matched", "test_matched.tsv", "MNLI-m.tsv"),
            _mnli_split("test_mismatched", "test_mismatched.tsv", "MNLI-mm.tsv"),
        ),
        validation_splits=("validation_matched", "validation_mismatched"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="MNLI",
        published=(
            PublishedScore("test_matched", "accuracy", 0.846),
            PublishedScore("test_mismatched", "accuracy", 0.834),
        ),
        note="matched: the genres seen in training; mismatched: others",
    ),
    DatasetRow(
        name="qnli",
        task="text-classification",
        description="GLUE QNLI: does the sentence answer the question?",
        columns=Columns("question", "sentence", "label"),
        labels=("entailment", "not_entailment"),
        splits=_glue_splits("qnli", "QNLI.tsv", train=Columns("question", "sentence", "label")),
        validation_splits=_VALIDATION,
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="QNLI",
        published=(PublishedScore("test", "accuracy", 0.905),),
    ),
    DatasetRow(
        name="rte",
        task="text-classification",
        description="GLUE RTE: does the second sentence follow from the first?",
        columns=_SENTENCES,
        labels=("entailment", "not_entailment"),
        splits=_glue_splits("rte", "RTE.tsv", train=_SENTENCES),
        validation_splits=_VALIDATION,
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="RTE",
        published=(PublishedScore("test", "accuracy", 0.664),),
    ),
    DatasetRow(
        name="wnli",
        task="text-classification",
        description="GLUE WNLI: does the sentence with the pronoun replaced follow?",
        columns=_SENTENCES,
        labels=("not_entailment", "entailment"),
        splits=_glue_splits("wnli", "WNLI.tsv", train=_SENTENCES),
        validation_splits=_VALIDATION,
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="WNLI",
        note="its validation split contradicts its training split on purpose; the paper leaves it out",
    ),
    DatasetRow(
        name="ax",
        task="text-classification",
        description="GLUE diagnostic set: hand-made pairs for a model trained on mnli; for prediction only",
        columns=Columns("premise", "hypothesis", "label"),
        labels=_NLI_LABELS,
        splits=(
            SplitRow(
                "test",
                "ax/test-00000-of-00001.parquet",
                ("diagnostic.tsv",),
                Columns("sentence1", "sentence2"),
                labelled=False,
                glue_file="AX.tsv",
            ),
        ),
        validation_splits=(),
        metrics=("matthews",),
        primary_metric="matthews",
        folder="diagnostic",
        note="no training rows: `bertctl predict` with a run of mnli",
    ),
    *TAGGING_ROWS,
    *QUESTION_ROWS,
    *CHOICE_ROWS,
)

DATASETS: dict[str, DatasetRow] = {row.name: row for row in _ROWS}
"""The catalog, by name."""


def find_dataset(name: str) -> DatasetRow:
    """A data set by its catalog name; `SST-2` and `sst2` are the same.

    Raises:
        UsageError: there is none of this name (the nearest names are shown).
    """
    spellings = {spelling: row for row in _ROWS for spelling in (row.name, _plain(row.folder))}
    row = DATASETS.get(name) or spellings.get(_plain(name))
    if row is None:
        hint = did_you_mean(_plain(name), DATASETS)
        raise UsageError(
            f"there is no data set '{name}'" + (f": {hint}" if hint else ""),
            remedy=f"Names: {', '.join(DATASETS)}. Files of your own: "
            "`bertctl finetune text-classification --train-file FILE`.",
        )
    return row


def bundled_folder(row: DatasetRow) -> Path:
    """Where a bundled data set's files are in the installed package."""
    return Path(__file__).parent / row.folder


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
