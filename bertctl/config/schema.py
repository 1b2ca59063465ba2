"""The recipe: strict, frozen sections. The docstring under a field is its help text, its comment in a
dumped recipe and its documentation; nothing else describes it.

Paths (`data.data_dir`, `data.*_file`, `evaluation.metric_scripts`, `model.name` where it is a folder) are relative to
the recipe file's folder when they stand in the file, and to the current directory when they are typed as an option or
after `--set`; `~` is the home folder. `load.load_recipe` makes them absolute, so a saved recipe runs from anywhere.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

TaskName = Literal[
    "text-classification", "text-regression", "token-classification", "question-answering", "multiple-choice"
]

Fraction = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Character = Annotated[str, Field(min_length=1, max_length=1)]


class Section(BaseModel):
    """What all sections share: no unknown key, no silent conversion, no change after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, protected_namespaces=()
    )


class DataSection(Section):
    """Which rows, from where, under which column names."""

    name: Text | None = None
    """Data set by its catalog name (`bertctl recipes ls --data`); files of your own go into the fields below."""
    data_dir: Text | None = None
    """Folder with the data set's official files, searched as DIR/FILE and DIR/NAME/FILE. Left out: the folder that
    the environment variable BERTCTL_DATA names, else the hub is asked."""
    train_file: Text | None = None
    """Training rows: CSV, TSV, JSONL or Parquet, each also as .gz."""
    validation_file: Text | None = None
    """Rows to score on during and after training; without it a part of the training rows is held out."""
    test_file: Text | None = None
    """Rows never looked at unless `evaluation.splits` or `--split` names `test`."""
    text_column: Text | None = None
    """Column with the text (the first sentence of a pair; a tagger's words; the question; what choices are about);
    guessed from the usual names when left out."""
    pair_column: Text | None = None
    """Column with the second sentence of a pair (the text that a question is about; words that every choice
    continues); guessed only where the text column was guessed too."""
    label_column: Text | None = None
    """Column with the label or the score (the tags; the answers; the right choice); guessed from the usual names when
    left out."""
    choice_columns: list[Text] | None = None
    """Multiple choice: the columns with the choices, in order, or one column with lists; guessed when left out."""
    id_column: Text | None = None
    """Column with each row's id; without it rows are numbered from 0."""
    delimiter: Character | None = None
    """Field separator of CSV and TSV files; detected when left out."""
    header: bool | None = None
    """Whether CSV and TSV files begin with column names; detected when left out."""
    encoding: Text | None = None
    """Encoding of text files, such as `utf-8` or `latin-1`; UTF-8 (with or without BOM) when left out."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the training rows held out when there is no validation file: seeded, stratified by label."""
    first_train_rows: PositiveInt | None = None
    """Read only so many training rows, the first ones, before any are held out or sampled."""
    max_train_rows: PositiveInt | None = None
    """Train on a seeded sample of this many rows."""
    max_eval_rows: PositiveInt | None = None
    """Score at most this many rows of each split, the first ones."""


class ModelSection(Section):
    """Which encoder, and how it reads."""

    name: Text = "bert-base"
    """Catalog name (`bertctl recipes ls --models`), folder, hub id, or the folder of an earlier run."""
    revision: Text | None = None
    """Branch, tag or commit of a hub model; the catalog's or the hub's default when left out."""
    max_length: Annotated[int, Field(ge=4)] = 128
    """Longest input in tokens, special tokens included; what is cut is counted and shown."""
    lowercase: bool | None = None
    """Whether text is lower-cased; must agree with the model. Left out: as the model's tokenizer says."""
    dropout: Fraction | None = None
    """Dropout of hidden states, attention and classifier; as the model was made when left out (BERT: 0.1, paper,
    appendix A.2)."""


class TrainingSection(Section):
    """How long, in which portions, from which seed."""

    epochs: PositiveInt = 3
    """Passes over the training rows (paper, appendix A.3: 2, 3 or 4)."""
    batch_size: PositiveInt = 32
    """Examples for each optimizer step, over all devices and accumulation steps (paper: 16 or 32)."""
    accumulation_steps: PositiveInt = 1
    """Parts a batch is computed in, one after the other, to save memory; the numbers stay the same."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 42
    """Seed of the new head, the data order, dropout and every sample."""
    evaluate_every: PositiveInt | None = None
    """Score the validation split every this many steps; after each epoch when left out."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations without a better primary metric; never when left out."""
    log_every: PositiveInt = 10
    """Steps between two lines of history.jsonl."""
    checkpoint_every: Annotated[str, Field(pattern=r"^(off|[1-9]\d* (steps|minutes))$")] | None = None
    """Save a checkpoint every `N steps` or `N minutes` besides the one at the end of each epoch; `off` saves none. The
    last two are kept until the run is finished."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, about a third more time."""
    group_by_length: bool = True
    """Form batches of like lengths, in an order fixed by seed and epoch: the same steps, less padding."""


class OptimizerSection(Section):
    """torch.optim.AdamW and the paper's schedule."""

    learning_rate: PositiveFloat = 5e-5
    """Peak rate (paper, appendix A.3: 5e-5, 3e-5 or 2e-5)."""
    weight_decay: NonNegativeFloat = 0.01
    """Decoupled decay of every weight except biases and normalisation (google-research/bert: the same)."""
    warmup_fraction: Fraction = 0.1
    """Share of all steps in which the rate rises from 0 to its peak; it then falls straight to 0. google-research/bert
    lets the falling line start at step 0, so its peak is 10 % lower and the warm-up ends with a step down."""
    beta1: Fraction = 0.9
    """Decay of the gradient's running mean."""
    beta2: Fraction = 0.999
    """Decay of the squared gradient's running mean."""
    epsilon: PositiveFloat = 1e-8
    """Added to the denominator; google-research/bert has 1e-6 and, unlike AdamW here, no bias correction
    (`optimization.py::AdamWeightDecayOptimizer`), which makes its first steps larger."""
    max_grad_norm: PositiveFloat = 1.0
    """The gradient's global norm is clipped to this (google-research/bert: 1.0)."""


class EvaluationSection(Section):
    """What is scored, and what is kept of it."""

    splits: list[Text] = []
    """Splits scored at the end; when left out, the validation splits of the data. `test` only if named here."""
    primary_metric: Text | None = None
    """Metric that picks the best weights; the data set's or the task's own when left out."""
    batch_size: PositiveInt = 64
    """Examples for each forward pass in evaluation and prediction."""
    bootstrap_resamples: Annotated[int, Field(ge=100)] = 1000
    """Resamples behind the 95 % interval of metrics that are not proportions."""
    slice_columns: list[Text] = []
    """Columns copied into the prediction files, to look at parts of a split later."""
    keep_text: bool = True
    """Whether prediction files hold the texts."""
    metric_scripts: list[Text] = []
    """Local `evaluate` metric scripts to compute as well. They are run: name only code you trust."""


class RuntimeSection(Section):
    """Where and how it computes. Decides speed, and the last digits of the numbers."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; `auto` takes CUDA, then MPS, then the CPU. A device that is asked for and absent is an error."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the forward and backward pass (weights stay fp32); `auto` is bf16 where it is fast."""
    threads: PositiveInt | None = None
    """CPU threads; all cores of the process when left out."""
    deterministic: bool = False
    """Use deterministic algorithms only, which a GPU needs to give the same numbers twice; some are slower."""
    log_to: list[Literal["tensorboard", "mlflow", "wandb"]] = []
    """Trackers that get the history too, through accelerate; each needs its extra."""


class TextClassificationSection(Section):
    """Settings of the task `text-classification`."""

    labels: list[Text] | None = None
    """Label names in the model's order; when left out, the data set's, else sorted as found in training."""
    multi_label: bool | None = None
    """Whether an example can have several labels or none; seen from list-valued labels when left out."""
    label_separator: Text | None = None
    """Character that separates several labels in one field of a CSV or TSV file; makes the task multi-label."""
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Probability from which a label counts as predicted (multi-label only)."""


class TextRegressionSection(Section):
    """Settings of the task `text-regression`."""

    clip_to_training_range: bool = False
    """Whether predictions are cut to the lowest and highest score seen in training."""


class TokenClassificationSection(Section):
    """Settings of the task `token-classification`."""

    labels: list[Text] | None = None
    """Tag names in the model's order (of entities in any scheme: they are learned as IOB2); when left out, the data
    set's, else sorted as found in training."""
    context: Literal["sentence", "document"] = "sentence"
    """Whether a sentence is read alone, or with its document's neighbours as far as the model reaches (the paper's
    way on CoNLL-2003, section 5.3)."""


class QuestionAnsweringSection(Section):
    """Settings of the task `question-answering`."""

    doc_stride: PositiveInt = 128
    """Tokens between the beginnings of two windows of a long text (google-research/bert `run_squad.py`: 128)."""
    max_question_length: PositiveInt = 64
    """Longest question in tokens; what is cut is counted and shown (run_squad.py: 64)."""
    max_answer_length: PositiveInt = 30
    """Longest answer in tokens (run_squad.py: 30)."""
    n_best: PositiveInt = 20
    """Answers kept for each question, with probabilities (run_squad.py: 20)."""
    derive_unanswerable: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Unanswerable questions made for training, as a share of the answerable ones: a question is paired with another
    paragraph of its article that lacks its answers, the likeliest by common words (seeded). For training on SQuAD 1.1
    what has to know when to be silent; 0.5 is SQuAD 2.0's share."""
    misplaced_answers: Literal["refuse", "leave-out"] = "refuse"
    """What becomes of a question whose answer's text is not at its offset in the context: an error, or it is counted
    and trained without (its loss is left out)."""


class ProbeSection(Section):
    """Settings of `bertctl probe`: a linear classifier on vectors of the frozen encoder. Fine-tuning reads none."""

    layers: list[Text] = []
    """Layers to compare, by name or number, or `all` (each one) or `paper` (the paper's six choices); the last one
    when left out."""
    pooling: list[Literal["cls", "mean", "max", "mean-max", "pooler", "first"]] = ["mean"]
    """How the tokens' vectors become one for the text; each is tried with each layer. Words have theirs by themselves:
    `first`, their first piece's."""
    classifier: Literal["logistic-regression", "linear-svm", "ridge"] | None = None
    """What is trained on the standardised vectors; logistic regression when left out, ridge for text-regression."""
    class_weight: Literal["none", "balanced"] = "none"
    """Whether rare labels count as much as frequent ones."""
    strengths: list[PositiveFloat] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    """Values of C (of ridge: of 1 / alpha) that cross-validation on the training rows chooses from."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Parts of the cross-validation, stratified by label."""
    special_tokens: bool = True
    """Whether [CLS], [SEP] and their like count in mean and max."""
    normalize: bool = False
    """Whether each vector is brought to length 1 before it is standardised."""
    repeats: PositiveInt = 1
    """Seeded hold-outs: with several, each choice is scored on as many, and mean and deviation are told."""
    train_sizes: list[PositiveInt] = []
    """Sizes of the learning curve: the best choice is trained on so many rows too."""


class Recipe(Section):
    """One fine-tuning run, complete."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=100)] = "recipe"
    """Short name of letters, digits, `.`, `_` and `-`; names the run folder. Left out: the recipe file's name."""
    description: str = ""
    """What it is for, and why its settings are what they are."""
    task: TaskName = "text-classification"
    """What is learned."""
    data: DataSection = DataSection()
    """Which rows, from where, under which column names."""
    model: ModelSection = ModelSection()
    """Which encoder, and how it reads."""
    training: TrainingSection = TrainingSection()
    """How long, in which portions, from which seed."""
    optimizer: OptimizerSection = OptimizerSection()
    """AdamW and the paper's schedule."""
    evaluation: EvaluationSection = EvaluationSection()
    """What is scored, and what is kept of it."""
    runtime: RuntimeSection = RuntimeSection()
    """Where and how it computes."""
    text_classification: TextClassificationSection = TextClassificationSection()
    """Settings of the task `text-classification`."""
    text_regression: TextRegressionSection = TextRegressionSection()
    """Settings of the task `text-regression`."""
    token_classification: TokenClassificationSection = TokenClassificationSection()
    """Settings of the task `token-classification`."""
    question_answering: QuestionAnsweringSection = QuestionAnsweringSection()
    """Settings of the task `question-answering`."""
    probe: ProbeSection = ProbeSection()
    """Settings of `bertctl probe`: a linear classifier on vectors of the frozen encoder. Fine-tuning reads none."""

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        found = [*_disagreements(self)]
        if found:
            raise DisagreementError(found)
        return self


TASK_SECTIONS: dict[str, str] = {
    "text-classification": "text_classification",
    "text-regression": "text_regression",
    "token-classification": "token_classification",
    "question-answering": "question_answering",
}
"""The recipe section that holds a task's own settings, where it has any (multiple choice has none)."""


class Disagreement(NamedTuple):
    """Fields that are possible each by itself, but not together.

    Attributes:
        fields: dotted names; the first is the one to change.
        message: why they don't fit.
    """

    fields: tuple[str, ...]
    message: str


class DisagreementError(ValueError):
    """All the disagreements of one recipe."""

    def __init__(self, found: Sequence[Disagreement]) -> None:
        super().__init__("; ".join(f"{item.fields[0]}: {item.message}" for item in found))
        self.found = found


def _disagreements(recipe: Recipe) -> Iterator[Disagreement]:
    data, training, labels = recipe.data, recipe.training, recipe.text_classification
    if training.batch_size % training.accumulation_steps:
        yield Disagreement(
            ("training.accumulation_steps", "training.batch_size"),
            f"{training.accumulation_steps} does not divide training.batch_size {training.batch_size}",
        )
    if data.name:
        for file in ("train_file", "validation_file", "test_file"):
            if getattr(data, file):
                yield Disagreement(
                    (f"data.{file}", "data.name"), f"data.name '{data.name}' already says which rows; leave one out"
                )
    elif data.data_dir:
        yield Disagreement(
            ("data.data_dir", "data.name"), "of use only with data.name; your own files go into data.train_file"
        )
    columns = ("text_column", "pair_column", "label_column")
    if data.encoding is not None and not _is_encoding(data.encoding):
        yield Disagreement(("data.encoding",), f"there is no text encoding '{data.encoding}'; utf-8 or latin-1 fits")
    for one, other in itertools.combinations(columns, 2):
        if getattr(data, one) is not None and getattr(data, one) == getattr(data, other):
            yield Disagreement((f"data.{other}", f"data.{one}"), f"the same column as data.{one}")
    if labels.label_separator and labels.multi_label is False:
        yield Disagreement(
            ("text_classification.label_separator", "text_classification.multi_label"),
            "several labels in a field, but text_classification.multi_label is false",
        )
    for name, values in {
        "text_classification.labels": labels.labels or (),
        "evaluation.splits": recipe.evaluation.splits,
        "evaluation.slice_columns": recipe.evaluation.slice_columns,
    }.items():
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            yield Disagreement((name,), f"given twice: {', '.join(twice)}")
    for task, section in TASK_SECTIONS.items():
        changed = getattr(recipe, section).model_dump(exclude_defaults=True)
        if task != recipe.task and changed:
            yield Disagreement(
                (f"{section}.{next(iter(changed))}", "task"),
                f"a setting of the task '{task}', but this recipe's task is '{recipe.task}'",
            )


def _is_encoding(name: str) -> bool:
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def fields() -> dict[str, FieldInfo]:
    """Every field that holds a value, by its dotted name (`training.epochs`), in the schema's order."""
    found: dict[str, FieldInfo] = {}
    for name, info in Recipe.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            found |= {f"{name}.{inner}": inner_info for inner, inner_info in info.annotation.model_fields.items()}
        else:
            found[name] = info
    return found


def sections() -> list[str]:
    """Names of the sections, in the schema's order."""
    known = fields()
    return [name for name in Recipe.model_fields if name not in known]
