"""GLUE in the catalog: the ten tasks, their official files, the paper's scores.

Label names stand in the order of the hub's `ClassLabel` feature, so that a model's outputs mean the same everywhere.
Published scores: Devlin et al. 2019 (arXiv 1810.04805), table 1, row BERT_BASE, scored by the GLUE server on the test
splits.
"""

from dataclasses import replace

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, PublishedScore, SplitRow

GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

_SENTENCE = Columns("sentence", label="label")
_SENTENCES = Columns("sentence1", "sentence2", "label")
_PREMISE = Columns("premise", "hypothesis", "label")
_NLI_LABELS = ("entailment", "neutral", "contradiction")


def _hub(config: str) -> Hub:
    return Hub("nyu-mll/glue", GLUE_REVISION, f"{config}/{{split}}-00000-of-00001.parquet")


def _splits(glue_file: str, columns: Columns | None = None) -> tuple[SplitRow, ...]:
    """Returns train, dev and test of a GLUE task; `columns` where the official files have other names than the hub."""
    return (
        SplitRow("train", ("train.tsv",), columns, header=True),
        SplitRow("validation", ("dev.tsv",), columns, header=True),
        SplitRow("test", ("test.tsv",), columns, labelled=False, header=True, glue_file=glue_file),
    )


def _cola_splits() -> tuple[SplitRow, ...]:
    """Returns splits of which train and dev have no header, unlike test."""
    train, validation, test = _splits("CoLA.tsv")
    by_position = Columns("3", label="1")
    headless = (replace(split, columns=by_position, header=False) for split in (train, validation))
    return (*headless, test)


def _mrpc_splits() -> tuple[SplitRow, ...]:
    """Returns splits of which test has two names."""
    *others, test = _splits("MRPC.tsv", Columns("#1 String", "#2 String", "Quality"))
    return (*others, replace(test, files=("test.tsv", "msr_paraphrase_test.txt")))


def _mnli_split(name: str, file: str, glue_file: str = "") -> SplitRow:
    columns = Columns("sentence1", "sentence2", "gold_label")
    return SplitRow(name, (file,), columns, labelled=not glue_file, header=True, glue_file=glue_file)


GLUE_ROWS = (
    DatasetRow(
        name="cola",
        task="text-classification",
        description="GLUE CoLA: is the sentence good English?",
        columns=_SENTENCE,
        labels=("unacceptable", "acceptable"),
        splits=_cola_splits(),
        hub=_hub("cola"),
        metrics=("matthews", "accuracy"),
        folder="CoLA",
        published=(PublishedScore("test", "matthews", 0.521),),
        layout="glue",
    ),
    DatasetRow(
        name="sst2",
        task="text-classification",
        description="GLUE SST-2: is the phrase from a film review positive or negative?",
        columns=_SENTENCE,
        labels=("negative", "positive"),
        splits=_splits("SST-2.tsv"),
        hub=_hub("sst2"),
        metrics=("accuracy",),
        folder="SST-2",
        published=(PublishedScore("test", "accuracy", 0.935),),
        layout="glue",
    ),
    DatasetRow(
        name="mrpc",
        task="text-classification",
        description="GLUE MRPC: do two sentences from the news say the same?",
        columns=_SENTENCES,
        labels=("not_equivalent", "equivalent"),
        splits=_mrpc_splits(),
        hub=_hub("mrpc"),
        metrics=("f1", "accuracy"),
        folder="MRPC",
        published=(PublishedScore("test", "f1", 0.889),),
        layout="glue",
    ),
    DatasetRow(
        name="stsb",
        task="text-regression",
        description="GLUE STS-B: how alike are two sentences in meaning, from 0 to 5?",
        columns=_SENTENCES,
        splits=_splits("STS-B.tsv", Columns("sentence1", "sentence2", "score")),
        hub=_hub("stsb"),
        metrics=("spearman", "pearson"),
        folder="STS-B",
        published=(PublishedScore("test", "spearman", 0.858),),
        layout="glue",
    ),
    DatasetRow(
        name="qqp",
        task="text-classification",
        description="GLUE QQP: do two questions ask the same?",
        columns=Columns("question1", "question2", "label"),
        labels=("not_duplicate", "duplicate"),
        splits=_splits("QQP.tsv", Columns("question1", "question2", "is_duplicate")),
        hub=_hub("qqp"),
        metrics=("f1", "accuracy"),
        folder="QQP",
        published=(PublishedScore("test", "f1", 0.712),),
        layout="glue",
    ),
    DatasetRow(
        name="mnli",
        task="text-classification",
        description="GLUE MNLI: does the second sentence follow from the first, contradict it, or neither?",
        columns=_PREMISE,
        labels=_NLI_LABELS,
        splits=(
            _mnli_split("train", "train.tsv"),
            _mnli_split("validation_matched", "dev_matched.tsv"),
            _mnli_split("validation_mismatched", "dev_mismatched.tsv"),
            _mnli_split("test_matched", "test_matched.tsv", "MNLI-m.tsv"),
            _mnli_split("test_mismatched", "test_mismatched.tsv", "MNLI-mm.tsv"),
        ),
        hub=_hub("mnli"),
        metrics=("accuracy",),
        folder="MNLI",
        published=(
            PublishedScore("test_matched", "accuracy", 0.846),
            PublishedScore("test_mismatched", "accuracy", 0.834),
        ),
        layout="glue",
        note="matched: the genres seen in training; mismatched: others",
    ),
    DatasetRow(
        name="qnli",
        task="text-classification",
        description="GLUE QNLI: does the sentence answer the question?",
        columns=Columns("question", "sentence", "label"),
        labels=("entailment", "not_entailment"),
        splits=_splits("QNLI.tsv"),
        hub=_hub("qnli"),
        metrics=("accuracy",),
        folder="QNLI",
        published=(PublishedScore("test", "accuracy", 0.905),),
        layout="glue",
    ),
    DatasetRow(
        name="rte",
        task="text-classification",
        description="GLUE RTE: does the second sentence follow from the first?",
        columns=_SENTENCES,
        labels=("entailment", "not_entailment"),
        splits=_splits("RTE.tsv"),
        hub=_hub("rte"),
        metrics=("accuracy",),
        folder="RTE",
        published=(PublishedScore("test", "accuracy", 0.664),),
        layout="glue",
    ),
    DatasetRow(
        name="wnli",
        task="text-classification",
        description="GLUE WNLI: does the sentence with the pronoun replaced follow?",
        columns=_SENTENCES,
        labels=("not_entailment", "entailment"),
        splits=_splits("WNLI.tsv"),
        hub=_hub("wnli"),
        metrics=("accuracy",),
        folder="WNLI",
        layout="glue",
        note="its validation split contradicts its training split on purpose; the paper leaves it out",
    ),
    DatasetRow(
        name="ax",
        task="text-classification",
        description="GLUE diagnostic set: hand-made pairs for a model trained on mnli; for prediction only",
        columns=_PREMISE,
        labels=_NLI_LABELS,
        splits=(
            SplitRow(
                "test",
                ("diagnostic.tsv",),
                Columns("sentence1", "sentence2"),
                labelled=False,
                header=True,
                glue_file="AX.tsv",
            ),
        ),
        hub=_hub("ax"),
        metrics=("matthews",),
        folder="diagnostic",
        layout="glue",
        note="no training rows: `bertctl predict` with a run of mnli",
    ),
)
