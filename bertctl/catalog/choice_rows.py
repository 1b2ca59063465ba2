"""Multiple choice in the catalog: SWAG and CODAH."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, PublishedScore, SplitRow

_CODAH_HUB = Columns("question_propmt", label="correct_answer_idx", choices=("candidate_answers",))  # spelt so there

CHOICE_ROWS = (
    DatasetRow(
        name="swag",
        task="multiple-choice",
        description="SWAG: which of four endings continues what a film clip shows?",
        columns=Columns("sent1", "sent2", "label", ("ending0", "ending1", "ending2", "ending3")),
        splits=(
            SplitRow("train", ("train.csv",), header=True),
            SplitRow("validation", ("val.csv", "validation.csv"), header=True),
            SplitRow("test", ("test.csv",), labelled=False, header=True),
        ),
        hub=Hub(
            "allenai/swag",
            "dc48148372b3853a9c7bae7bb06c161b46d8364a",
            "regular/{split}-00000-of-00001.parquet",
        ),
        metrics=("accuracy",),
        folder="SWAG",
        published=(
            PublishedScore("validation", "accuracy", 0.816, "Devlin et al. 2019, table 4, BERT-base, validation split"),
        ),
        note="official files: github.com/rowanz/swagaf, data/; the test labels are the leaderboard's secret",
    ),
    DatasetRow(
        name="codah",
        task="multiple-choice",
        description="CODAH: which of four endings makes sense? Written by people against a model trained on SWAG",
        columns=Columns("column2", label="column7", choices=("column3", "column4", "column5", "column6")),
        splits=(
            SplitRow("train", ("train.tsv",), header=False),
            SplitRow("validation", ("dev.tsv", "validation.tsv"), header=False),
            SplitRow("test", ("test.tsv",), header=False),
        ),
        hub=Hub(
            "jaredfern/codah",
            "fa449321d1f0ec393c0b089bb85bfe947112cc63",  # of its branch of Parquet files
            "fold_0/{split}/0000.parquet",
            _CODAH_HUB,
        ),
        metrics=("accuracy",),
        folder="CODAH",
        note="fold 0 of the five official ones; for another give --data-dir with its files (cv_split/fold_N)",
    ),
)
