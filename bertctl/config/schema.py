"""The recipe: strict, frozen sections. The docstring under a field is its help text, its comment in a
dumped recipe and its documentation; nothing else describes it.

Paths (`data.data_dir`, `data.*_file`, `evaluation.metric_scripts`, `model.name` where it is a folder) are relative to
the recipe file's folder when they stand in the file, and to the current directory when they are typed as an option or
after `--set`; `~` is the home folder. `load.load_recipe` makes them absolute, so a saved recipe runs from anywhere.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from bertctl.config.agreement import DisagreementError, disagreements

TaskName = Literal[
    "text-classification", "text-regression", "token-classification", "question-answering", "multiple-choice"
]

Fraction = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
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
    folds: Annotated[int, Field(ge=2)] | None = None
    """Cut the training rows into so many parts, seeded and stratified by label, and hold out one of them, data.fold,
    instead of validation_fraction. `bertctl sweep --folds` runs them all."""
    fold: PositiveInt | None = None
    """Which of the data.folds parts is held out for validation, counted from 1."""
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
    init_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """Seed of the new head and of dropout alone; training.seed when left out."""
    order_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """Seed of the data order alone; training.seed when left out."""
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
    preset: Literal["small-data"] | None = None
    """Values that fit together, for the fields that are not given; after `--set`, also over those of the recipe file.
    `small-data`: up to 20 epochs, patience 10, rate 2e-5, 10 % warm-up, with AdamW's bias correction (Mosbach et al.
    2021; Zhang et al. 2021), for some thousand rows or fewer."""
    freeze_embeddings: bool = False
    """Leave the embeddings as they are (Lee et al. 2019, "What Would Elsa Do?")."""
    freeze_layers: NonNegativeInt = 0
    """Leave so many of the encoder's layers as they are, counted from the bottom (Lee et al. 2019: the
    top quarter alone, trained, kept 90 % of the quality)."""
    gradual_unfreezing: bool = False
    """Train only the head in the first epoch, and one layer more in each that follows, from the top down; after the
    last layer the embeddings (Howard & Ruder 2018, ULMFiT). Goes well with optimizer.layer_decay."""
    reinit_layers: NonNegativeInt | None = None
    """Initialise the pooler and so many of the top layers anew before training, from the run's seed (Zhang et al. 2021,
    "Revisiting Few-sample BERT Fine-tuning": 1 to 6 of BERT-large's 24); 0 means the pooler alone."""
    class_weights: list[PositiveFloat] | Literal["balanced"] | None = None
    """How much each label counts in the training loss, in the model's order; `balanced`: examples / (labels x the
    label's examples), as in King & Zeng 2001 and scikit-learn. Words, where words are labelled. Multi-label: how much
    more a label's presence counts than its absence (`balanced`: absences / presences). Losses of evaluations stay
    unweighted."""
    label_smoothing: Fraction = 0.0
    """Share of each training label that is spread evenly over all labels (Szegedy et al. 2016, section 7: 0.1).
    Losses of evaluations stay unsmoothed."""
    average_best: Annotated[int, Field(ge=2)] | None = None
    """At the end, average the weights of so many best evaluations, and keep the average if the validation rows say so
    (Izmailov et al. 2018; checkpoint averaging of Vaswani et al. 2017)."""

    @property
    def seed_of_init(self) -> int:
        """Of the new head and dropout."""
        return self.seed if self.init_seed is None else self.init_seed

    @property
    def seed_of_order(self) -> int:
        """Of the data order."""
        return self.seed if self.order_seed is None else self.order_seed


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
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Each layer's rate is this times the rate of the one above: the head has learning_rate, the embeddings the lowest
    (Clark et al. 2020, ELECTRA: 0.8; Sun et al. 2019: 0.95; Zhang et al. 2021). The discriminative rates of ULMFiT
    (Howard & Ruder 2018) are 1 / 2.6 = 0.385. 1: the same for all."""


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
        found = [*disagreements(self)]
        if found:
            raise DisagreementError(found)
        return self


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
