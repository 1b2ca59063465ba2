"""Multiple choice in the catalog: SWAG and CODAH."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, PublishedScore, SplitRow

_SWAG_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_SWAG = Columns("sent1", "sent2", "label", _SWAG_ENDINGS)
_CODAH_FILE = Columns("column2", None, "column7", ("column3", "column4", "column5", "column6"))
_CODAH_HUB = Columns("question_propmt", None, "correct_answer_idx", ("candidate_answers",))  # spelt so on the hub

CHOICE_ROWS = (
    DatasetRow(
        name="swag",
        task="multiple-choice",
        description="SWAG: which of four endings continues what a film clip shows?",
        columns=_SWAG,
        labels=(),
        splits=(
            SplitRow("train", "regular/train-00000-of-00001.parquet", ("train.csv",), _SWAG),
            SplitRow("validation", "regular/validation-00000-of-00001.parquet", ("val.csv", "validation.csv"), _SWAG),
            SplitRow(
                "test",
                "regular/test-00000-of-00001.parquet",
                ("test.csv",),
                Columns("sent1", "sent2", None, _SWAG_ENDINGS),
                labelled=False,
            ),
        ),
        validation_splits=("validation",),
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="SWAG",
        published=(
            PublishedScore("validation", "accuracy", 0.816, "Devlin et al. 2019, table 4, BERT-base, validation split"),
        ),
        hub_repo="allenai/swag",
        hub_revision="dc48148372b3853a9c7bae7bb06c161b46d8364a",
        official="own",
        note="official files: github.com/rowanz/swagaf, data/; the test labels are the leaderboard's secret",
    ),
    DatasetRow(
        name="codah",
        task="multiple-choice",
        description="CODAH: which of four endings makes sense? Written by people against a model trained on SWAG",
        columns=_CODAH_HUB,
        labels=(),
        splits=(
            SplitRow("train", "fold_0/train/0000.parquet", ("train.tsv",), _CODAH_FILE, header=False),
            SplitRow(
                "validation", "fold_0/validation/0000.parquet", ("dev.tsv", "validation.tsv"), _CODAH_FILE, header=False
            ),
            SplitRow("test", "fold_0/test/0000.parquet", ("test.tsv",), _CODAH_FILE, header=False),
        ),
        validation_splits=("validation",),
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="CODAH",
        hub_repo="jaredfern/codah",
        hub_revision="fa449321d1f0ec393c0b089bb85bfe947112cc63",  # of its branch of Parquet files
        official="own",
        note="fold 0 of the five official ones; for another give --data-dir with its files (cv_split/fold_N)",
    ),
)
