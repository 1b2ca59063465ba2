"""Question answering in the catalog: SQuAD 1.1, SQuAD 2.0, and a small set written for bertctl."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, PublishedScore, SplitRow

_COLUMNS = Columns("question", "context", "answers")
_VALIDATION = ("validation",)
_PAPER = "Devlin et al. 2019, table 2, BERT-base (single), validation split"

QUESTION_ROWS = (
    DatasetRow(
        name="squad",
        task="question-answering",
        description="SQuAD 1.1: questions about paragraphs of Wikipedia; the answer is a part of the paragraph",
        columns=_COLUMNS,
        labels=(),
        splits=(
            SplitRow("train", "plain_text/train-00000-of-00001.parquet", ("train-v1.1.json",), _COLUMNS),
            SplitRow("validation", "plain_text/validation-00000-of-00001.parquet", ("dev-v1.1.json",), _COLUMNS),
        ),
        validation_splits=_VALIDATION,
        metrics=("f1", "exact_match"),
        primary_metric="f1",
        folder="SQuAD",
        published=(
            PublishedScore("validation", "f1", 0.885, _PAPER),
            PublishedScore("validation", "exact_match", 0.808, _PAPER),
        ),
        hub_repo="rajpurkar/squad",
        hub_revision="7b6d24c440a36b6815f21b70d25016731768db1f",
        official="own",
    ),
    DatasetRow(
        name="squad2",
        task="question-answering",
        description="SQuAD 2.0: as SQuAD 1.1, and half as many questions that their paragraph does not answer",
        columns=_COLUMNS,
        labels=(),
        splits=(
            SplitRow("train", "squad_v2/train-00000-of-00001.parquet", ("train-v2.0.json",), _COLUMNS),
            SplitRow("validation", "squad_v2/validation-00000-of-00001.parquet", ("dev-v2.0.json",), _COLUMNS),
        ),
        validation_splits=_VALIDATION,
        metrics=("f1", "exact_match"),
        primary_metric="f1",
        folder="SQuAD2",
        hub_repo="rajpurkar/squad_v2",
        hub_revision="3ffb306f725f7d2ce8394bc1873b24868140c412",
        official="own",
        note="the threshold for no answer is chosen on the split that is scored: other rows show it less kindly",
    ),
    DatasetRow(
        name="demo-qa",
        task="question-answering",
        description="192 questions about 64 short texts, a fifth unanswerable, written for bertctl; inside the package",
        columns=_COLUMNS,
        labels=(),
        splits=tuple(SplitRow(name, "", (f"{name}.json",), _COLUMNS) for name in ("train", "validation")),
        validation_splits=_VALIDATION,
        metrics=("f1", "exact_match"),
        primary_metric="f1",
        folder="demo_qa",
        hub_repo="",
        hub_revision="",
        official="own",
    ),
)
