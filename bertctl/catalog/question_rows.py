"""Question answering in the catalog: SQuAD 1.1, SQuAD 2.0, and a small set written for bertctl."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, PublishedScore, files

_COLUMNS = Columns("question", "context", "answers")
_METRICS = ("f1", "exact_match")
_PAPER = "Devlin et al. 2019, table 2, BERT-base (single), validation split"

QUESTION_ROWS = (
    DatasetRow(
        name="squad",
        task="question-answering",
        description="SQuAD 1.1: questions about paragraphs of Wikipedia; the answer is a part of the paragraph",
        columns=_COLUMNS,
        splits=files(train="train-v1.1.json", validation="dev-v1.1.json"),
        hub=Hub(
            "rajpurkar/squad",
            "7b6d24c440a36b6815f21b70d25016731768db1f",
            "plain_text/{split}-00000-of-00001.parquet",
        ),
        metrics=_METRICS,
        folder="SQuAD",
        published=(
            PublishedScore("validation", "f1", 0.885, _PAPER),
            PublishedScore("validation", "exact_match", 0.808, _PAPER),
        ),
    ),
    DatasetRow(
        name="squad2",
        task="question-answering",
        description="SQuAD 2.0: as SQuAD 1.1, and half as many questions that their paragraph does not answer",
        columns=_COLUMNS,
        splits=files(train="train-v2.0.json", validation="dev-v2.0.json"),
        hub=Hub(
            "rajpurkar/squad_v2",
            "3ffb306f725f7d2ce8394bc1873b24868140c412",
            "squad_v2/{split}-00000-of-00001.parquet",
        ),
        metrics=_METRICS,
        folder="SQuAD2",
        note="the threshold for no answer is chosen on the split that is scored: other rows show it less kindly",
    ),
    DatasetRow(
        name="demo-qa",
        task="question-answering",
        description="192 questions about 64 short texts, a fifth unanswerable, written for bertctl; inside the package",
        columns=_COLUMNS,
        splits=files(train="train.json", validation="validation.json"),
        metrics=_METRICS,
        folder="demo_qa",
        bundled=True,
    ),
)
