"""Token classification in the catalog: entities (demo-ner, CoNLL-2003, WNUT-17, BC5CDR) and parts of speech (UD)."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, PublishedScore, SplitRow

_LAST_COLUMN = Columns("0", None, "-1")
_CONLL_U = Columns("form", None, "upos")
_HUB = Columns("tokens", None, "ner_tags")
_ENTITIES = ("entity_f1", "entity_precision", "entity_recall", "accuracy")
_CONVERTED = "refs/convert/parquet"
"""The branch in which the hub keeps what it has converted from data sets that need a script."""


def _tags(*types: str) -> tuple[str, ...]:
    return ("O", *(f"{letter}-{name}" for name in types for letter in "BI"))


TAGGING_ROWS = (
    DatasetRow(
        name="demo-ner",
        task="token-classification",
        description="Everyday sentences with people, places, organisations and dates, written for bertctl; inside the "
        "package",
        columns=_LAST_COLUMN,
        labels=_tags("PER", "LOC", "ORG", "DATE"),
        splits=tuple(SplitRow(name, "", (f"{name}.conll",), _LAST_COLUMN) for name in ("train", "validation", "test")),
        validation_splits=("validation",),
        metrics=_ENTITIES,
        primary_metric="entity_f1",
        folder="demo_ner",
        hub_repo="",
        hub_revision="",
        official="own",
    ),
    DatasetRow(
        name="conll2003",
        task="token-classification",
        description="CoNLL-2003: people, places, organisations and others in English news",
        columns=_HUB,
        labels=_tags("PER", "ORG", "LOC", "MISC"),
        splits=(
            SplitRow("train", "default/train/0000.parquet", ("eng.train", "train.txt"), _LAST_COLUMN),
            SplitRow("validation", "default/validation/0000.parquet", ("eng.testa", "valid.txt"), _LAST_COLUMN),
            SplitRow("test", "default/test/0000.parquet", ("eng.testb", "test.txt"), _LAST_COLUMN),
        ),
        validation_splits=("validation",),
        metrics=_ENTITIES,
        primary_metric="entity_f1",
        folder="conll2003",
        published=(
            PublishedScore("validation", "entity_f1", 0.964, "Devlin et al. 2019, table 7, BERT-base, fine-tuned"),
            PublishedScore("test", "entity_f1", 0.924, "Devlin et al. 2019, table 7, BERT-base, fine-tuned"),
        ),
        hub_repo="lhoestq/conll2003",
        hub_revision="645d8a1e6610499ea08990f5c5935a8d54ee76a1",  # of its branch of Parquet files
        official="own",
        note="the official files are IOB1 and have documents; the hub's copy is IOB2 and has none",
    ),
    DatasetRow(
        name="wnut17",
        task="token-classification",
        description="WNUT-17: rare and new names in posts and comments",
        columns=_HUB,
        labels=_tags("corporation", "creative-work", "group", "location", "person", "product"),
        splits=(
            SplitRow("train", "wnut_17/train/0000.parquet", ("wnut17train.conll",), _LAST_COLUMN),
            SplitRow("validation", "wnut_17/validation/0000.parquet", ("emerging.dev.conll",), _LAST_COLUMN),
            SplitRow("test", "wnut_17/test/0000.parquet", ("emerging.test.annotated",), _LAST_COLUMN),
        ),
        validation_splits=("validation",),
        metrics=_ENTITIES,
        primary_metric="entity_f1",
        folder="wnut17",
        hub_repo="leondz/wnut_17",
        hub_revision=_CONVERTED,
        official="own",
    ),
    DatasetRow(
        name="bc5cdr",
        task="token-classification",
        description="BC5CDR: chemicals and diseases in abstracts of medical articles",
        columns=Columns("tokens", None, "tags"),
        labels=(),
        splits=(
            SplitRow("train", "bc5cdr/train/0000.parquet", ("train.txt",), _LAST_COLUMN),
            SplitRow("validation", "bc5cdr/validation/0000.parquet", ("dev.txt",), _LAST_COLUMN),
            SplitRow("test", "bc5cdr/test/0000.parquet", ("test.txt",), _LAST_COLUMN),
        ),
        validation_splits=("validation",),
        metrics=_ENTITIES,
        primary_metric="entity_f1",
        folder="bc5cdr",
        hub_repo="tner/bc5cdr",
        hub_revision=_CONVERTED,
        hub_labels=("O", "B-Chemical", "B-Disease", "I-Disease", "I-Chemical"),
        official="own",
        note="the column files have one type, Entity, in no pure scheme; the hub's copy has Chemical and Disease",
    ),
    DatasetRow(
        name="ud-pos",
        task="token-classification",
        description="Universal Dependencies, English Web Treebank: the part of speech of each word",
        columns=Columns("tokens", None, "upos"),
        labels=(
            "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT",
            "SCONJ", "SYM", "VERB", "X",
        ),
        splits=(
            SplitRow("train", "en_ewt/train/0000.parquet", ("en_ewt-ud-train.conllu",), _CONLL_U),
            SplitRow("validation", "en_ewt/validation/0000.parquet", ("en_ewt-ud-dev.conllu",), _CONLL_U),
            SplitRow("test", "en_ewt/test/0000.parquet", ("en_ewt-ud-test.conllu",), _CONLL_U),
        ),
        validation_splits=("validation",),
        metrics=("accuracy",),
        primary_metric="accuracy",
        folder="ud-english-ewt",
        hub_repo="universal-dependencies/universal_dependencies",
        hub_revision="bc04fa5dd6c03bcb03355f289f2ce385fecc7250",  # of its branch of Parquet files
        official="own",
        note="official files: github.com/UniversalDependencies/UD_English-EWT; the hub's copy is an older release",
    ),
)  # fmt: skip
