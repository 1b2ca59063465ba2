"""The sections of a recipe, strict and frozen.

The docstring under a field is its help text, its comment in a dumped recipe and its documentation;
nothing else describes it. Its first sentence stands alone in `--help`.

Paths (`data.data_dir`, `data.*_file`, `evaluation.metric_scripts`, `model.name` where it is a
folder) are relative to the recipe file's folder when they stand in the file, and to the current
directory when they are typed as an option or after `--set`; `~` is the home folder.
`load.load_recipe` makes them absolute, so a saved recipe runs from anywhere.
"""

from enum import Enum, auto
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from bertctl.config.losses import (
    CLASS_LOSSES,
    FEW_SHOT_LOSSES,
    SENTENCE_LOSSES,
    require_loss,
    write_names,
)
from bertctl.config.task_names import require_task_name, write_task_names

Fraction = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]
Character = Annotated[str, Field(min_length=1, max_length=1)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Several = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
ClassLoss = Annotated[
    str,
    AfterValidator(require_loss(CLASS_LOSSES)),
    Field(json_schema_extra=write_names(CLASS_LOSSES)),
]
SentenceLoss = Annotated[
    str,
    AfterValidator(require_loss(SENTENCE_LOSSES)),
    Field(json_schema_extra=write_names(SENTENCE_LOSSES)),
]
FewShotLoss = Annotated[
    str,
    AfterValidator(require_loss(FEW_SHOT_LOSSES)),
    Field(json_schema_extra=write_names(FEW_SHOT_LOSSES)),
]


class Mark(Enum):
    """Properties of recipe fields beside their types; `schema.marked` lists fields with one."""

    IS_PATH = auto()
    """A path: relative to the recipe file's folder, or to the current directory if it is typed."""
    BY_CONTENT = auto()
    """Names a file that changes a run's numbers. The hash has the file's content, not the field."""
    NO_NUMBER = auto()
    """Changes none of a run's numbers (texts, logging), and is not in the hash."""
    LATER = auto()
    """Has come since hashes are written down: in the hash only where it is used, so that a recipe
    that doesn't use it keeps its hash, its run folder and its checkpoints."""


OwnFile = Annotated[Text | None, Mark.IS_PATH, Mark.BY_CONTENT]


class RecipeSection(BaseModel):
    """Refuses unknown keys and silent conversions, and can't be changed after reading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        protected_namespaces=(),
        defer_build=True,
    )


class TaskSettings(RecipeSection):
    """Settings of one task; the section is called as the task, with underscores."""


class DataSection(RecipeSection):
    """Which rows are read, from where, and under which column names."""

    name: Text | None = None
    """Data set of the catalog, by name. `bertctl recipes ls --data` lists the built-in ones; a
    `datasets.yaml` adds your own. Single files go into the fields below."""
    datasets_file: OwnFile = None
    """File with data sets of your own, for use in `data.name`. Default: `datasets.yaml` beside the
    recipe file. If a base of the recipe sets `data.name`, the file beside that base comes first."""
    data_dir: OwnFile = None
    """Folder with the data set's official files. bertctl looks for DIR/FILE and DIR/NAME/FILE.
    Default: the folder in the environment variable BERTCTL_DATA, else the hub."""
    train_file: OwnFile = None
    """File with the training rows: CSV, TSV, JSONL or Parquet, each also as .gz."""
    validation_file: OwnFile = None
    """File with the validation rows. Default: a share of the training rows."""
    test_file: OwnFile = None
    """File with the test rows. They are read only if `evaluation.splits` or `--split` names
    `test`."""
    text_column: Text | None = None
    """Column with the text. Pairs: the first sentence; token classification: the words; question
    answering: the question; multiple choice: the context. Default: guessed from the usual names."""
    pair_column: Text | None = None
    """Column with the second sentence of a pair. Question answering: the context; multiple choice:
    words that every choice continues. Default: guessed if the text column is guessed."""
    negative_column: Annotated[Text | None, Mark.LATER] = None
    """Column with a text that does not belong to the first one (sentence embeddings). Default:
    guessed from the usual names."""
    label_column: Text | None = None
    """Column with the label or the score. Token classification: the tags; question answering: the
    answers; multiple choice: the right choice. Default: guessed from the usual names."""
    label_columns: Annotated[list[Text] | None, Field(min_length=1), Mark.LATER] = None
    """Columns of 0 and 1, one for each label (several labels per text). Default: guessed if the
    file has no other label column."""
    choice_columns: list[Text] | None = None
    """Columns with the choices, in order, or one column with lists (multiple choice). Default:
    guessed from the usual names."""
    first_choice: Annotated[Literal[0, 1] | None, Mark.BY_CONTENT] = None
    """Number of the first choice, if labels are numbers (multiple choice). Default: detected. It is
    0 if a label is 0. If the columns are numbered (`option1`, `option2`), it is the number of the
    first column. A file that could count from 0 or from 1 is refused."""
    id_column: Text | None = None
    """Column with each row's id. Default: id, _id, guid, uid or uuid, else rows are numbered."""
    delimiter: Character | None = None
    """Field separator of CSV and TSV files. Default: detected."""
    header: bool | None = None
    """Whether CSV and TSV files begin with column names. Default: detected."""
    encoding: Text | None = None
    """Encoding of text files, such as `latin-1`. Default: UTF-8. A byte-order mark is left out."""
    longest_line: Annotated[PositiveInt, Mark.NO_NUMBER] = 16
    """Longest line of a text file, in megabytes. A longer one is refused before it fills the
    memory."""
    overlapping_spans: Annotated[Literal["refuse", "longest"], Mark.LATER] = "refuse"
    """How overlapping character spans are treated (token classification). `longest` keeps the
    longest ones and counts the others."""
    annotator: Annotated[Text | None, Mark.LATER] = None
    """Annotator whose labels are used, by name, e-mail or number. `predictions` uses the
    predictions of the model in the file. If people disagree on a row, it is refused, unless one
    annotation is marked as ground truth. Default: all people."""
    validation_fraction: Share = 0.1
    """Share of the training rows held out if you give no validation file. The rows are chosen by
    `data.split_seed`, stratified by label; related rows (`data.group_column`) stay in one split.
    With `training.time_limit`, at most 10 rows are held out for each second of it, or 200 if that
    is more."""
    split_seed: Annotated[Seed, Mark.LATER] = 42
    """Seed that chooses held-out rows, folds and samples. `training.seed` does not change them, so
    runs with several seeds are scored on the same rows."""
    confirm_fraction: Annotated[Share | None, Mark.LATER] = None
    """Share of the validation rows to set apart as the split `confirm`. It is scored once, at the
    end, and `gate` uses it. Its scores are not optimistic, because it does not choose the epoch or
    the setting."""
    group_column: Annotated[Text | None, Mark.LATER] = None
    """Column that names the group of each row, such as its author or patient. Hold-outs and folds
    never divide a group. Without it, rows with the same article, context, document, text or first
    sentence of a pair are a group."""
    folds: Annotated[Several | None, Mark.LATER] = None
    """Number of folds for cross-validation. The training rows are divided into folds, stratified by
    label, and the fold `data.fold` is held out instead of `data.validation_fraction`. `bertctl
    sweep --folds` runs all of them."""
    fold: Annotated[PositiveInt | None, Mark.LATER] = None
    """Fold that is held out for validation, counted from 1."""
    first_train_rows: PositiveInt | None = None
    """Read only this many training rows, from the beginning. Held-out rows and samples are taken
    from these."""
    max_train_rows: PositiveInt | None = None
    """Train on a sample of at most this many rows, chosen by `data.split_seed`."""
    train_rows_per_label: Annotated[PositiveInt | None, Mark.LATER] = None
    """Train on this many rows of each label, drawn by `data.split_seed`. If a label has fewer rows,
    all are used. Validation rows are held out first."""
    max_eval_rows: PositiveInt | None = None
    """Score a sample of at most this many rows per split. It is chosen by `data.split_seed`."""

    @property
    def own_files(self) -> dict[str, str | None]:
        """The user's files by split; None for a split without a file."""
        return {
            "train": self.train_file,
            "validation": self.validation_file,
            "test": self.test_file,
        }


class ModelSection(RecipeSection):
    """Which encoder is used, and how it reads text."""

    name: Annotated[Text, Mark.IS_PATH, Mark.BY_CONTENT] = "bert-base"
    """Model: catalog name, folder, hub id, or run folder. `bertctl recipes ls --models` lists the
    catalog."""
    revision: Annotated[Text | None, Mark.BY_CONTENT] = None
    """Branch, tag or commit of a hub model. Default: the catalog's, else the hub's."""
    keep_layers: Annotated[
        list[PositiveInt] | None,
        Field(min_length=1, examples=[[1, 3, 5]]),
        Mark.LATER,
    ] = None
    """Layers of the model to keep, as ascending numbers from 1 at the bottom. The others are
    removed; embeddings and a head that fits are kept (Sanh et al. 2019, DistilBERT). Default:
    all."""
    max_length: Annotated[int, Field(ge=4)] = 128
    """Longest input in tokens, special tokens included. Longer inputs are truncated, counted and
    shown. `training.preset: auto` raises it to up to 256 if your texts are longer."""
    long_text: Annotated[Literal["head", "tail", "head-tail", "window"], Mark.LATER] = "head"
    """Which part of a long text is read: the beginning, the end, both, or all of it in overlapping
    windows. It applies to classification and regression. `head-tail` reads a quarter from the
    beginning and three quarters from the end (Sun et al. 2019). Token classification and question
    answering always read windows."""
    window_stride: Annotated[NonNegativeInt | None, Mark.LATER] = None
    """Tokens by which two windows of a text overlap. Default: an eighth of `model.max_length`."""
    window_pooling: Annotated[
        Literal["mean", "max", "first", "attention", "logits"] | None, Mark.LATER
    ] = None
    """How the vectors of a text's windows are combined, before the last layer. `attention` weighs
    them by a learned vector. `logits` averages the logits of the windows, which equals `mean` if
    the last layer is linear. Default: `attention`, or `mean` if the encoder is frozen."""
    lowercase: bool | None = None
    """Whether text is lower-cased. It must agree with the model. Default: as the model's tokenizer
    says."""
    dropout: Fraction | None = None
    """Dropout of hidden states, attention and classifier. Default: the model's own (BERT: 0.1;
    paper, appendix A.2)."""
    head_start: Annotated[Literal["probe", "random"], Mark.LATER] = "random"
    """How a new head is initialised. `probe`: as a logistic regression on the frozen encoder (for
    scores, a ridge regression), fitted to a sample of the training rows before the first step. Then
    all weights are trained (Kumar et al. 2022, "Fine-tuning can distort pretrained features"). A
    head that was trained for the same labels is kept."""


class TrainingSection(RecipeSection):
    """How long and in which batches the model is trained, and from which seed."""

    epochs: PositiveInt = 3
    """Passes over the training rows. The BERT paper takes 2, 3 or 4 (appendix A.3)."""
    max_steps: Annotated[PositiveInt | None, Mark.LATER] = None
    """Number of optimizer steps, instead of `training.epochs`. An option `--epochs` wins over the
    value in a recipe file. Default: the steps of all epochs."""
    time_limit: Annotated[
        str | None,
        Field(pattern=r"^([1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*)[smh]$", examples=["30s", "20m", "2h"]),
        Mark.LATER,
    ] = None
    """Time limit for reading, training and scoring together. bertctl trains as many steps as fit,
    and the learning rate falls to 0 with the last one. A run that fits is not shortened. In a
    sweep, the limit holds for each run. Fewer rows may be held out, see `data.validation_fraction`.
    Default: none."""
    batch_size: PositiveInt = 32
    """Examples per optimizer step, over all devices and accumulation steps. The BERT paper takes 16
    or 32."""
    accumulation_steps: PositiveInt = 1
    """Micro-batches per optimizer step, computed one after the other to save memory. This
    changes only the random numbers of dropout."""
    seed: Seed = 42
    """Seed of the new head, the data order, dropout and the bootstrap's draws."""
    init_seed: Annotated[Seed | None, Mark.LATER] = None
    """Seed of the new head and of dropout alone. Default: `training.seed`."""
    order_seed: Annotated[Seed | None, Mark.LATER] = None
    """Seed of the data order alone. Default: `training.seed`."""
    evaluate_every: PositiveInt | None = None
    """Score the validation split every this many steps. Default: after each epoch."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations without a better primary metric. Default: never."""
    log_every: Annotated[PositiveInt, Mark.NO_NUMBER] = 10
    """Steps between two lines of history.jsonl."""
    checkpoint_every: Annotated[
        str | None,
        Field(
            pattern=r"^(off|[1-9]\d* (steps|minutes))$", examples=["50 steps", "10 minutes", "off"]
        ),
        Mark.NO_NUMBER,
    ] = None
    """Save a checkpoint every `N steps` or `N minutes`, besides the one after each epoch; `off`
    saves none. The last two are kept until the run is finished."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them. It takes less memory and
    about a third more time."""
    group_by_length: bool = True
    """Batch examples of similar length, which saves padding. The order is fixed by seed and epoch,
    and the number of steps stays the same."""
    preset: Annotated[Literal["auto", "small-data"] | None, Mark.NO_NUMBER] = None
    """Named set of values for fields that you do not set. After `--set`, it also replaces values of
    the recipe file. `auto` chooses learning rate, layer decay, batch size, warm-up, epochs,
    evaluations and patience by the encoder's width and depth and by the number of rows and labels.
    `small-data`: up to 20 epochs, patience 10, learning rate 2e-5 and 10 % warm-up, with AdamW's
    bias correction (Mosbach et al. 2021; Zhang et al. 2021), for a few thousand rows or fewer."""
    freeze_embeddings: Annotated[bool, Mark.LATER] = False
    """Freeze the embeddings, so that they are not trained. See Lee et al. 2019, "What Would Elsa
    Do?"."""
    freeze_layers: Annotated[NonNegativeInt, Mark.LATER] = 0
    """Freeze this many of the encoder's layers, counted from the bottom. Lee et al. 2019 kept 90 %
    of the quality by training only the top quarter."""
    gradual_unfreezing: Annotated[bool, Mark.LATER] = False
    """Train only the head in the first epoch, and one layer more in each epoch after it, from the
    top down. The embeddings come last (Howard & Ruder 2018, ULMFiT). It goes well with
    `optimizer.layer_decay`."""
    reinit_layers: Annotated[NonNegativeInt | None, Mark.LATER] = None
    """Re-initialise the pooler and this many of the top layers before training. The run's seed
    decides the values; 0 means the pooler alone (Zhang et al. 2021, "Revisiting Few-sample BERT
    Fine-tuning": 1 to 6 of BERT-large's 24)."""
    loss: Annotated[ClassLoss, Mark.LATER] = "cross-entropy"
    """Loss that training minimises (text and token classification). Evaluations report the
    cross-entropy, whatever the training minimises."""
    focal_gamma: Annotated[NonNegativeFloat, Mark.LATER] = 2.0
    """Exponent of the focal loss (`training.loss: focal`). The loss of an example is multiplied by
    (1 - p)^gamma, where p is the probability of its label. With a higher gamma, well-classified
    examples count less. Lin et al. 2017 use 2; 0 gives the cross-entropy."""
    class_weights: Annotated[list[PositiveFloat] | Literal["balanced"] | None, Mark.LATER] = None
    """Weight of each label in the training loss, in the model's order, or `balanced`. Balanced:
    examples / (labels x the label's examples), as in King & Zeng 2001 and scikit-learn; token
    classification counts words. Multi-label: the weight of the label's presence relative to its
    absence (`balanced`: absences / presences). The losses of evaluations are not weighted."""
    label_smoothing: Annotated[Fraction, Mark.LATER] = 0.0
    """Share of each training label that is spread evenly over all labels. Szegedy et al. 2016,
    section 7, use 0.1. With class weights, each example has the weight of its true label. The
    losses of evaluations are not smoothed."""
    average_best: Annotated[Several | None, Mark.LATER] = None
    """Average the weights of this many best evaluations at the end. The average is kept if it
    scores better on the validation rows. With `tie_breaker: loss`, it is also kept if its loss is
    lower and the 95 % interval of the difference in score includes 0, as the best evaluation is the
    best by luck, too (Izmailov et al. 2018; checkpoint averaging of Vaswani et al. 2017)."""
    tie_breaker: Annotated[Literal["first", "loss"], Mark.LATER] = "first"
    """Which evaluation wins if several have the same primary metric: the `first` one, or the one
    with the lowest validation `loss`. With few validation rows, most evaluations have the same
    accuracy."""

    @property
    def seed_of_init(self) -> int:
        """Seed of the new head and of dropout."""
        if self.init_seed is None:
            return self.seed
        return self.init_seed

    @property
    def seed_of_order(self) -> int:
        """Seed of the data order."""
        if self.order_seed is None:
            return self.seed
        return self.order_seed


class OptimizerSection(RecipeSection):
    """Settings of torch.optim.AdamW and of the BERT paper's learning rate schedule."""

    learning_rate: PositiveFloat = 5e-5
    """Peak learning rate. The BERT paper takes 5e-5, 3e-5 or 2e-5 (appendix A.3)."""
    weight_decay: NonNegativeFloat = 0.01
    """Decoupled weight decay of every weight except biases and normalisation. google-research/bert
    does the same."""
    warmup_fraction: Fraction = 0.1
    """Share of all steps in which the learning rate rises from 0 to its peak. Then it falls
    linearly to 0. In google-research/bert, the falling line begins at step 0. Its peak is therefore
    0.989 to 0.9997 of this one (90 to 3,000 steps of warm-up), and it then steps down to a line
    that is 10 % lower."""
    beta1: Fraction = 0.9
    """Decay of the gradient's running mean."""
    beta2: Fraction = 0.999
    """Decay of the squared gradient's running mean."""
    epsilon: PositiveFloat = 1e-8
    """Number added to the denominator of the update. google-research/bert has 1e-6 and, unlike
    AdamW here, no bias
    correction (`optimization.py::AdamWeightDecayOptimizer`), which makes its first steps larger."""
    max_grad_norm: PositiveFloat = 1.0
    """Largest global norm of the gradient; a larger one is clipped. google-research/bert has 1.0
    too."""
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0), Mark.LATER] = 1.0
    """Factor by which the learning rate falls from each layer to the one below. The head has
    `optimizer.learning_rate`, and the embeddings have the lowest rate; 1 means the same rate for
    all. Published values are 0.8 (Clark et al. 2020, ELECTRA), 0.95 (Sun et al. 2019) and 1 / 2.6 =
    0.385 (Howard & Ruder 2018, ULMFiT). See also Zhang et al. 2021."""


class LoraSection(RecipeSection):
    """LoRA: linear layers of the encoder learn a small update beside their weight.

    The encoder stays as it is (Hu et al. 2021). `model/` has the updates merged; `adapter/` has
    them, and the head, as peft reads them. Needs `pip install 'bertctl[peft]'`.
    """

    rank: Annotated[PositiveInt | None, Mark.LATER] = None
    """Rank of the updates. 8 is usual: about 1.5 % of the parameters are trained. Default: no LoRA;
    all weights are trained, and this section is ignored."""
    alpha: Annotated[PositiveFloat | None, Mark.LATER] = None
    """Scale of the updates, which are multiplied by alpha / rank. Default: twice the rank."""
    dropout: Annotated[Fraction, Mark.LATER] = 0.0
    """Dropout on the input of the updates. It makes steps slower on a CPU."""
    targets: Annotated[list[Text], Mark.LATER] = []
    """Linear layers that get an update, by the ends of their names (`query`, `value`). Default: all
    linear layers of the encoder."""
    rslora: Annotated[bool, Mark.LATER] = False
    """Multiply updates by alpha / sqrt(rank) instead, so that high ranks learn as fast as low ones
    (Kalajdzievski 2023, rsLoRA)."""
    dora: Annotated[bool, Mark.LATER] = False
    """Use DoRA: learn the length of each weight row separately from its direction. It makes steps
    slower on a CPU (Liu et al. 2024)."""

    @property
    def alpha_in_use(self) -> float:
        """`alpha`, by default twice the rank."""
        if self.alpha is None:
            return 2.0 * (self.rank or 0)
        return self.alpha


class DistillationSection(RecipeSection):
    """A student learns from the answers of a teacher (Hinton et al. 2015).

    The teacher is a finished run, and the labels stay beside its answers. `bertctl distill` is the
    verb around it.
    """

    teacher: Annotated[Text | None, Mark.IS_PATH, Mark.BY_CONTENT] = None
    """Folder of the teacher: a run or a fine-tuned model. Its predictions for the training rows are
    computed once and cached. Default: none; the model learns only from the labels."""
    unlabelled: Annotated[Text | None, Mark.IS_PATH, Mark.BY_CONTENT, Mark.LATER] = None
    """File with unlabelled rows, of any size. The student also learns the teacher's predictions for
    them. Labels in the file are ignored."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False), Mark.LATER] = 0.5
    """Weight of the labels in the loss. The teacher's predictions have the weight 1 - alpha; with 0
    only they count, with 1 only the labels."""
    temperature: Annotated[PositiveFloat, Mark.LATER] = 2.0
    """Divisor of the logits before teacher and student are compared. With a higher one, the student
    learns more about the labels that the teacher does not predict (Hinton et al. 2015: 1 to 20). It
    has no effect on scores."""
    relations: Annotated[NonNegativeFloat, Mark.LATER] = 0.0
    """Weight of the loss that makes the student's queries and values relate tokens as the teacher's
    do. 0 switches it off. See Wang et al. 2021, MiniLMv2."""
    relation_heads: Annotated[PositiveInt | None, Mark.LATER] = None
    """Number of heads into which the vectors of `relations` are divided. Default: the teacher's
    attention heads."""
    relation_layer: Annotated[PositiveInt | None, Mark.LATER] = None
    """Layer of the teacher whose `relations` the student learns, counted from 1. Default: the
    last."""


class EvaluationSection(RecipeSection):
    """Splits and metrics to score, and files to keep."""

    splits: list[Text] = []
    """Splits scored at the end. Default: the validation splits of the data; `test` only if it is
    named here."""
    primary_metric: Text | None = None
    """Metric that picks the best weights. Default: the data set's, else the task's."""
    positive_label: Annotated[Text | None, Mark.LATER] = None
    """Label that `f1`, `roc_auc` and `average_precision` are computed for, if there are two.
    Default: guessed from the names."""
    batch_size: PositiveInt = 64
    """Examples per forward pass in evaluation and prediction."""
    bootstrap_resamples: Annotated[int, Field(ge=100)] = 1000
    """Resamples behind the 95 % interval of metrics that are not proportions. The scores of a
    finished run use up to 10,000, if that takes no time."""
    slice_columns: Annotated[list[Text], Mark.NO_NUMBER] = []
    """Columns copied into the prediction files, to compare parts of a split later."""
    keep_text: Annotated[bool, Mark.NO_NUMBER] = True
    """Whether prediction files hold the texts."""
    settings_compared: Annotated[PositiveInt, Mark.NO_NUMBER] = 1
    """Number of settings that a sweep compares by these scores. Sweeps set it."""
    baselines: Annotated[bool, Mark.NO_NUMBER] = False
    """Score simple models beside the run, and warn if the run is not better. They are a linear
    classifier on the frozen encoder, and TF-IDF with a linear model (for tags: the most frequent
    tag of each word). They take at most about a tenth of the run's time. They exist for text
    classification, text regression and token classification. Runs of a sweep compute none."""
    metric_scripts: Annotated[list[Text], Mark.IS_PATH, Mark.BY_CONTENT] = []
    """Local `evaluate` metric scripts to compute as well. They run only if `--metric` names them on
    the command line."""


class RuntimeSection(RecipeSection):
    """Where and how the run computes. It decides speed, and the last digits of the numbers."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device that computes; `auto` takes CUDA, then MPS, then the CPU. A device that you name must
    be available."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of the computation; `auto` is bf16 if that is fast here. On a CPU, bertctl measures
    it once. The weights stay in fp32, and the head computes in fp32."""
    threads: PositiveInt | None = None
    """CPU threads. Default: one per core of the process."""
    accept_drift: Annotated[NonNegativeFloat | None, Mark.LATER, Mark.NO_NUMBER] = None
    """Accept an export whose numbers differ by up to X from those of the machine that made it.
    Default: the tolerance that the export records."""
    deterministic: bool = False
    """Use only deterministic algorithms. A GPU needs them to give the same numbers twice; some are
    slower."""
    cuda_graphs: Annotated[bool, Mark.LATER] = True
    """Use CUDA graphs on a GPU: record the operations for a batch shape, and start them all at
    once. The numbers stay the same. It takes a fraction of the time, and more memory."""
    log_to: Annotated[
        list[
            Literal[
                "tensorboard",
                "mlflow",
                "wandb",
                "trackio",
                "aim",
                "clearml",
                "comet_ml",
                "dvclive",
                "swanlab",
            ]
        ],
        Mark.NO_NUMBER,
    ] = []
    """Experiment trackers that also get the history, through accelerate. Each needs its package:
    `pip install 'bertctl[NAME]'` for the first four."""
    mlflow_register: Annotated[
        str | None, Field(pattern=r"^[^@/:\s]+@[\w-]+$", examples=["NAME@ALIAS"]), Mark.NO_NUMBER
    ] = None
    """Register the finished run in MLflow as a new version of this model, and move the alias to it:
    `NAME@alias`."""


class TextClassificationSection(TaskSettings):
    """Settings of the task `text-classification`."""

    labels: list[Text] | None = None
    """Label names in the model's order. 0/1 vectors have the same order. Default: those of the data
    set or of a Parquet file that `datasets` wrote, else those found in training, sorted."""
    multi_label: bool | None = None
    """Whether an example can have several labels or none. Default: yes if labels are lists."""
    label_separator: Text | None = None
    """Character between several labels in one field of a CSV or TSV file. It makes the task
    multi-label."""
    threshold: Share = 0.5
    """Lowest probability of a predicted label (multi-label only)."""


class TextRegressionSection(TaskSettings):
    """Settings of the task `text-regression`."""

    clip_to_training_range: bool = False
    """Clip predictions to the lowest and highest score seen in training."""


class TokenClassificationSection(TaskSettings):
    """Settings of the task `token-classification`."""

    labels: list[Text] | None = None
    """Tag names, in the order of the model's outputs. Entities are learned in IOB2, whatever the
    scheme of the file. Default: the data set's, else those found in training, sorted."""
    context: Literal["sentence", "document"] = "sentence"
    """Read each sentence alone, or together with as much of its document as fits. The BERT paper
    reads documents on CoNLL-2003 (section 5.3)."""
    scheme: Annotated[Literal["iob1", "iob2", "bioes", "bilou"] | None, Mark.LATER] = None
    """Tagging scheme of predictions, and of the reference tags beside them. Default: that of the
    labelled file, else that of the training file."""
    rename_tags: Annotated[
        list[Annotated[str, Field(pattern=r"^[^=]+=[^=]+$")]] | None,
        Field(examples=[["PERSON=PER", "GPE=LOC"]]),
        Mark.LATER,
    ] = None
    """New names for entity types or plain tags of a file, as OLD=NEW. Use them if a model and your
    file have different names for the same type. Default: none."""
    entity_threshold: Annotated[Fraction, Mark.LATER] = 0.0
    """Lowest probability of an entity's least certain word. Default: any. Entities with a less
    certain word are dropped."""


class QuestionAnsweringSection(TaskSettings):
    """Settings of the task `question-answering`."""

    doc_stride: PositiveInt = 128
    """Tokens between the beginnings of two windows of a long text. google-research/bert
    `run_squad.py`: 128."""
    max_question_length: PositiveInt = 64
    """Longest question in tokens. Longer ones are truncated, counted and shown (`run_squad.py`:
    64)."""
    max_answer_length: PositiveInt = 30
    """Longest answer in tokens (`run_squad.py`: 30)."""
    n_best: PositiveInt = 20
    """Answers kept per question, with probabilities (`run_squad.py`: 20)."""
    null_threshold: Annotated[FiniteFloat | None, Mark.LATER] = None
    """Null odds above which a question has no answer. Default: chosen on the validation rows, if
    some have none."""
    misplaced_answers: Literal["refuse", "leave-out"] = "refuse"
    """Refuse or leave out questions whose answer's text is not at its offset in the context.
    Questions that are left out are counted, and not trained on."""


class SentenceEmbeddingsSection(TaskSettings):
    """Settings of the task `sentence-embeddings`.

    They say how vectors are made, and what makes them near or far.
    """

    loss: SentenceLoss | None = None
    """Loss that training minimises. Default: cosine for scores, contrastive for two labels, softmax
    for more, else multiple-negatives."""
    pooling: Literal["cls", "mean", "max", "mean-max"] | None = None
    """How the token vectors are combined into one per text. Default: the setting in the model's
    folder, else mean."""
    normalize: bool | None = None
    """Whether each vector is scaled to length 1. Default: the setting in the model's folder, else
    no."""
    projection: PositiveInt | None = None
    """Size of the vectors after a new linear layer that follows the pooling. Default: no such
    layer."""
    widths: list[PositiveInt] = []
    """Smaller sizes to which you can shorten the vectors later. The loss of each size is added
    (Kusupati et al. 2022, Matryoshka)."""
    scale: PositiveFloat = 20.0
    """Factor of the cosines in `cosent` and `multiple-negatives` (1 / temperature)."""
    margin: PositiveFloat | None = None
    """How far apart two texts should be. In `triplet`, the third text should be farther than the
    second by this distance; in `contrastive`, it is a value of 1 - cosine. Default: 5 for `triplet`
    and 0.5 for `contrastive`, as in sentence-transformers."""
    symmetric: bool = False
    """Whether `multiple-negatives` also finds the first text of each pair by its second."""
    score_range: Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)] | None = None
    """Lowest and highest possible score, which correspond to the cosines 0 and 1. Default: those of
    the training rows."""
    query_prompt: str | None = None
    """Words put before the first text of a row. Default: the folder's prompt for queries, or for
    all texts."""
    document_prompt: str | None = None
    """Words put before the other texts of a row. Default: the folder's prompt for documents, or for
    all texts."""


class PretrainingSection(TaskSettings):
    """Settings of `bertctl pretrain`: the corpus and the losses."""

    corpus: Annotated[list[Text], Mark.IS_PATH] = []
    """Files and folders with text. One sentence per line with empty lines between documents, or one
    document per line; JSONL, Parquet, CSV and TSV with a text column; each also as .gz."""
    objective: Literal["mlm", "mlm+nsp", "mlm+sop"] = "mlm+nsp"
    """Masked words alone, or with next sentence prediction or sentence order. The BERT paper adds
    the losses of masked words and next sentences (section 3.1). Sentence order is from ALBERT (Lan
    et al. 2020)."""
    from_scratch: Annotated[Text | None, Mark.IS_PATH] = None
    """Size of a new BERT: tiny, mini, small, medium, base, or a JSON file with the fields of a
    BertConfig. The sizes are the miniatures of google-research/bert. Default: training
    continues from `model.name`."""
    vocab: Annotated[Text | None, Mark.IS_PATH] = None
    """Vocabulary of a new BERT: a folder, a vocab.txt or a tokenizer.json. Default: one is trained
    on the corpus."""
    vocab_size: Annotated[int, Field(ge=100)] = 30000
    """Number of tokens of a vocabulary that is trained on the corpus. The BERT paper has 30,000."""
    first_weights: Literal["corpus", "random"] = "corpus"
    """Initial weights of a new BERT: computed from the corpus, or random. Weights from the corpus
    reflect which tokens occur, and which occur together (Levy and Goldberg 2014), so a small corpus
    is learned much faster. The BERT paper uses random weights."""
    short_sequences: Fraction = 0.1
    """Share of the windows that are cut short, to a random length (google-research/bert: 0.1)."""
    mix: list[
        Annotated[
            str,
            Field(pattern=r"^.+=(\d*[1-9]\d*(\.\d+)?|\d*\.\d*[1-9]\d*)$", examples=["FILE=0.5"]),
        ]
    ] = []
    """Weight of each corpus, as CORPUS=WEIGHT. Default: they are read in proportion to their
    sizes."""
    mix_temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    """Weigh each corpus by its size to the power of 1 / this number. Above 1, small ones count more
    (Devlin 2019, multilingual BERT: 1.43)."""
    allow_duplicates: bool = False
    """Whether a corpus may have more than 1 % repeated lines."""


class MaskingSection(RecipeSection):
    """Which tokens `bertctl pretrain` masks (BERT paper, section 3.1 and appendix A.1)."""

    rate: Share = 0.15
    """Share of the tokens that are chosen. The BERT paper has 0.15; Wettig et al. 2023 train large
    models with 0.4."""
    whole_word: bool = False
    """Whether all tokens of a chosen word are chosen."""
    spans: bool = False
    """Whether spans of whole words are chosen. They are 3.8 words long on average, at most 10
    (Joshi et al. 2020, SpanBERT)."""
    replaced: Annotated[float, Field(ge=0.0, le=1.0)] = 0.8
    """Share of the chosen tokens that become [MASK]."""
    random: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the chosen tokens that become a random token. The others stay as they are."""


class ProbeSection(RecipeSection):
    """Settings of `bertctl probe`, a linear classifier on vectors of the frozen encoder.

    Fine-tuning reads none of them.
    """

    layers: list[Text] = []
    """Layers to compare, by name or number, or `all`, or `paper` (the BERT paper's six choices).
    Default: the last layer."""
    pooling: Annotated[
        list[Literal["cls", "mean", "max", "mean-max", "pooler", "first"]], Field(min_length=1)
    ] = ["mean"]
    """How the token vectors are combined into one per text; each is tried with each layer. Token
    classification always takes `first`, the vector of a word's first token."""
    classifier: Literal["logistic-regression", "ridge"] | None = None
    """Classifier trained on the standardised vectors. Default: logistic regression, or ridge for
    text-regression."""
    class_weight: Literal["none", "balanced"] = "none"
    """Whether rare labels count as much as frequent ones."""
    strengths: Annotated[list[PositiveFloat], Field(min_length=1)] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    """Values of C (ridge: of 1 / alpha). Cross-validation on the training rows chooses one."""
    folds: Several = 5
    """Folds of the cross-validation, stratified by label. There are fewer if the rarest label has
    fewer rows. A label with a single row stays in training."""
    special_tokens: bool = True
    """Whether [CLS], [SEP] and other special tokens count in mean and max."""
    normalize: bool = False
    """Whether each vector is scaled to length 1 before it is standardised."""
    repeats: PositiveInt = 1
    """Number of seeded hold-outs. With several, each choice is scored on all of them, and you get
    the mean and the standard deviation."""


class FewShotSection(RecipeSection):
    """Settings of `bertctl finetune few-shot`.

    An encoder learns from pairs of a few labelled texts, and a logistic regression from its vectors
    (SetFit, Tunstall et al. 2022).
    """

    loss: FewShotLoss | None = None
    """Loss by which the encoder learns from pairs of texts. Default: no pairs; the whole model is
    fine-tuned on the labels."""
    strength: PositiveFloat = 1e-3
    """C of the logistic regression on standardised vectors."""
    draws: PositiveInt = 1
    """Number of times that `data.train_rows_per_label` rows are drawn and learned from. The seeds
    begin with `data.split_seed`, and the model of the first draw is kept."""


class RecipeFields(RecipeSection):
    """Every field of a recipe. `schema.Recipe` adds what only fits together."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=100), Mark.NO_NUMBER] = "recipe"
    """Short name of letters, digits, `.`, `_` and `-`, which names the run folder. Default: the
    recipe file's name.

    If that is the name of a task, the data set or the training file gives the name.
    """
    description: Annotated[str, Mark.NO_NUMBER] = ""
    """What the recipe is for, and why its settings are what they are."""
    task: Annotated[
        str, AfterValidator(require_task_name), Field(json_schema_extra=write_task_names)
    ] = "text-classification"
    """Task of the recipe."""
    data: DataSection = Field(default_factory=DataSection)
    """Which rows are read, from where, and under which column names."""
    model: ModelSection = Field(default_factory=ModelSection)
    """Which encoder is used, and how it reads text."""
    training: TrainingSection = Field(default_factory=TrainingSection)
    """How long and in which batches the model is trained, and from which seed."""
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection)
    """Settings of AdamW and of the BERT paper's learning rate schedule."""
    lora: LoraSection = Field(default_factory=LoraSection)
    """LoRA: the encoder is frozen, and each of its linear layers learns a small update of its
    weight (Hu et al. 2021)."""
    distillation: DistillationSection = Field(default_factory=DistillationSection)
    """Distillation: a student learns from the predictions of a teacher, and from the labels."""
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    """Splits and metrics to score, and files to keep."""
    runtime: RuntimeSection = Field(default_factory=RuntimeSection)
    """Where and how the run computes."""
    text_classification: TextClassificationSection = Field(
        default_factory=TextClassificationSection
    )
    """Settings of the task `text-classification`."""
    text_regression: TextRegressionSection = Field(default_factory=TextRegressionSection)
    """Settings of the task `text-regression`."""
    token_classification: TokenClassificationSection = Field(
        default_factory=TokenClassificationSection
    )
    """Settings of the task `token-classification`."""
    question_answering: QuestionAnsweringSection = Field(default_factory=QuestionAnsweringSection)
    """Settings of the task `question-answering`."""
    sentence_embeddings: SentenceEmbeddingsSection = Field(
        default_factory=SentenceEmbeddingsSection
    )
    """Settings of the task `sentence-embeddings`: the loss, and how vectors are computed."""
    pretraining: PretrainingSection = Field(default_factory=PretrainingSection)
    """Settings of `bertctl pretrain`: the corpus and the losses."""
    masking: MaskingSection = Field(default_factory=MaskingSection)
    """Which tokens `bertctl pretrain` masks."""
    probe: ProbeSection = Field(default_factory=ProbeSection)
    """Settings of `bertctl probe`, a linear classifier on vectors of the frozen encoder.
    Fine-tuning reads none of them."""
    few_shot: FewShotSection = Field(default_factory=FewShotSection)
    """Settings of `bertctl finetune few-shot`."""

    @property
    def answers_texts(self) -> bool:
        """Whether the task gives one answer for each text or pair of texts.

        Only then does `model.long_text` apply, which says what is read of long texts.
        """
        return self.task.startswith("text-")
