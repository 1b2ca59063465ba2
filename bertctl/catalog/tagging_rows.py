"""Token classification in the catalog: entities (demo-ner, CoNLL-2003, WNUT-17, BC5CDR) and parts of speech (UD)."""

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, PublishedScore, files

_LAST_COLUMN = Columns("0", label="-1")
_HUB = Columns("tokens", label="ner_tags")
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
        splits=files(train="train.conll", validation="validation.conll", test="test.conll"),
        metrics=_ENTITIES,
        folder="demo_ner",
        bundled=True,
    ),
    DatasetRow(
        name="conll2003",
        task="token-classification",
        description="CoNLL-2003: people, places, organisations and others in English news",
        columns=_LAST_COLUMN,
        labels=_tags("PER", "ORG", "LOC", "MISC"),
        splits=files(
            train=("eng.train", "train.txt"), validation=("eng.testa", "valid.txt"), test=("eng.testb", "test.txt")
        ),
        hub=Hub(
            "lhoestq/conll2003",
            "645d8a1e6610499ea08990f5c5935a8d54ee76a1",  # of its branch of Parquet files
            "default/{split}/0000.parquet",
            _HUB,
        ),
        metrics=_ENTITIES,
        published=(
            PublishedScore("validation", "entity_f1", 0.964, "Devlin et al. 2019, table 7, BERT-base, fine-tuned"),
            PublishedScore("test", "entity_f1", 0.924, "Devlin et al. 2019, table 7, BERT-base, fine-tuned"),
        ),
        note="the official files are IOB1 and have documents; the hub's copy is IOB2 and has none",
    ),
    DatasetRow(
        name="wnut17",
        task="token-classification",
        description="WNUT-17: rare and new names in posts and comments",
        columns=_LAST_COLUMN,
        labels=_tags("corporation", "creative-work", "group", "location", "person", "product"),
        splits=files(train="wnut17train.conll", validation="emerging.dev.conll", test="emerging.test.annotated"),
        hub=Hub("leondz/wnut_17", _CONVERTED, "wnut_17/{split}/0000.parquet", _HUB),
        metrics=_ENTITIES,
    ),
    DatasetRow(
        name="bc5cdr",
        task="token-classification",
        description="BC5CDR: chemicals and diseases in abstracts of medical articles",
        columns=_LAST_COLUMN,
        splits=files(train="train.txt", validation="dev.txt", test="test.txt"),
        hub=Hub(
            "tner/bc5cdr",
            _CONVERTED,
            "bc5cdr/{split}/0000.parquet",
            Columns("tokens", label="tags"),
            labels=("O", "B-Chemical", "B-Disease", "I-Disease", "I-Chemical"),
        ),
        metrics=_ENTITIES,
        note="the column files have one type, Entity, in no pure scheme; the hub's copy has Chemical and Disease",
    ),
    DatasetRow(
        name="ud-pos",
        task="token-classification",
        description="Universal Dependencies, English Web Treebank: the part of speech of each word",
        columns=Columns("form", label="upos"),
        labels=(
            "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT",
            "SCONJ", "SYM", "VERB", "X",
        ),
        splits=files(train="en_ewt-ud-train.conllu", validation="en_ewt-ud-dev.conllu", test="en_ewt-ud-test.conllu"),
        hub=Hub(
            "universal-dependencies/universal_dependencies",
            "bc04fa5dd6c03bcb03355f289f2ce385fecc7250",  # of its branch of Parquet files
            "en_ewt/{split}/0000.parquet",
            Columns("tokens", label="upos"),
        ),
        metrics=("accuracy",),
        folder="ud-english-ewt",
        note="official files: github.com/UniversalDependencies/UD_English-EWT; the hub's copy is an older release",
    ),
)  # fmt: skip
