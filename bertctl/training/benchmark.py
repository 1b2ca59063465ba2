"""What precision, padding, batch size and length cost on this machine: training steps of many arms, timed in one run.

The arms take turns batch by batch, in a new order each turn, so that a busy or throttled machine slows all alike. They
share one model and one AdamW: a step takes as long whatever the weights are, and the memory that is read is that of one
run. Batches of like lengths are picked evenly, short to long, from those of an epoch; the other paddings read the same
rows mixed. Every step is the loop's own: forward, loss, backward, clipping, AdamW, gradients cleared.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertctl.config.schema import Recipe
from bertctl.data.load import load_data
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.inference.engine import autocast
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.modeling.untrained import untrained_source
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA
from bertctl.runtime.batching import POOL_BATCHES, Plan, training_plan
from bertctl.runtime.device import Compute, choose_compute
from bertctl.runtime.seeding import seed_everything
from bertctl.tasks.base import Features, Task
from bertctl.tasks.registry import task_from_data
from bertctl.training.benchmark_answers import answer_questions
from bertctl.training.benchmark_grid import Arm, Grid
from bertctl.training.loop import training_step
from bertctl.training.optim import build_optimizer, build_schedule
from bertctl.training.step_cost import (
    MatrixRate,
    read_peak_memory,
    reset_peak_memory,
    step_operations,
    synchronize,
    time_by_kind,
)
from bertctl.training.training_engine import TrainingEngine

if TYPE_CHECKING:
    from torch import nn

    from bertctl.modeling.load import LoadedModel

Item = TypeVar("Item")

_PROFILED_STEPS = 5
_MATRIX_TURNS = 10  # turns in which the matrix rate is measured too
_BUSY = 1.5  # the slowest of these measurements against the fastest; 1.1 on a quiet machine


@dataclass
class Measured:
    """What is known of one arm.

    Attributes:
        plan: its timed batches, in rows of the sample.
        warm: its batches before those, the widest first.
        seconds: of each timed batch.
        peak_memory: bytes at the peak of its widest batch, or None where that can't be read.
    """

    plan: Plan
    warm: Plan
    seconds: list[float] = field(default_factory=list)
    peak_memory: int | None = None


def benchmark_training(recipe: Recipe, grid: Grid, *, listener: Listener = SILENT) -> dict[str, Any]:
    """Measure the arms on the recipe's model and training rows.

    Returns:
        The content of benchmark.json: `arms` with their rates and ratios, `matrix_flops` by precision, `profile` of
        the default arm, `answers` as sentences.

    Raises:
        BertctlError: what fine-tuning would refuse, and what `Grid.check` does.
    """
    grid.check()
    grid = replace(
        grid,
        batch_sizes=grid.batch_sizes or (recipe.training.batch_size,),
        max_lengths=grid.max_lengths or (recipe.model.max_length,),
    )
    with _source(recipe, grid, listener) as source:
        rows, task = _sample(recipe, grid, listener)
        bench = _Bench(recipe, grid, source, task, rows)
    listener.say(f"compute: {bench.compute[bench.default.precision].why}")
    listener.say(
        f"{len(bench.arms)} arms on one model and the same rows, in turns: {grid.warmup} batches each to warm up, "
        f"{grid.batches} timed"
    )
    bench.measure(listener)
    document = bench.document() | {"profile": {"arm": asdict(bench.default), "shares": bench.profile()}}
    spread = max(rate.spread for rate in bench.rates.values())
    if spread > _BUSY:
        listener.warn(
            f"the machine was busy: one and the same matrix product took up to {spread:.1f} times as long. All arms "
            "had their share of that, but run it again on a quiet machine for firm figures."
        )
    return document | {"answers": answer_questions(document)}


class _Bench:
    """Model, rows and arms, made ready; then `measure`, `document`, `profile`."""

    def __init__(self, recipe: Recipe, grid: Grid, source: ModelSource, task: Task, rows: Rows) -> None:
        from accelerate import Accelerator

        from bertctl.modeling.load import load_model

        self.recipe, self.grid, self.source, self.task = recipe, grid, source, task
        own = choose_compute(recipe.runtime)
        fast = choose_compute(recipe.runtime.model_copy(update={"precision": "auto"}))
        names = grid.precisions or tuple(dict.fromkeys(("fp32", own.precision, fast.precision)))
        self.compute: dict[str, Compute] = {
            name: choose_compute(recipe.runtime.model_copy(update={"precision": name})) for name in names
        }
        if own.precision in self.compute:
            self.compute[own.precision] = own  # it knows why
        self.device = own.device
        seed_everything(recipe.training.seed)
        self.loaded: LoadedModel = load_model(
            source, task.auto_class, head=task.head(), dropout=recipe.model.dropout, weights=not grid.random_init
        )
        self.features: dict[int, Features] = {
            length: task.encode(rows, self.loaded.tokenizer, max_length=length) for length in grid.max_lengths
        }
        # accelerate knows one precision a process, so it is not told of any; see `forward_in`.
        self.accelerator = Accelerator(mixed_precision="no", cpu=self.device == "cpu")
        self.network, self.optimizer = self.accelerator.prepare(
            self.loaded.network, build_optimizer(self.loaded.network, recipe.optimizer)
        )
        self.schedule = build_schedule(self.optimizer, recipe.optimizer, steps=1)  # never taken
        self.network.train()
        self.forwards = {name: forward_in(self.network, compute) for name, compute in self.compute.items()}
        self.arms = {
            Arm(precision, padding, batch_size, max_length): self._batches(padding, batch_size)
            for batch_size, max_length, precision, padding in itertools.product(
                grid.batch_sizes, grid.max_lengths, self.compute, grid.paddings
            )
        }
        self.default = Arm(
            _wanted(own.precision, list(self.compute)),
            _wanted("length" if recipe.training.group_by_length else "dynamic", list(grid.paddings)),
            _wanted(recipe.training.batch_size, list(grid.batch_sizes)),
            _wanted(recipe.model.max_length, list(grid.max_lengths)),
        )
        self.rates = {name: MatrixRate(compute) for name, compute in self.compute.items()}
        self.operations = step_operations(self.network, self.device)

    def measure(self, listener: Listener) -> None:
        """Let every arm have its warm-up and its timed batches."""
        rng = np.random.default_rng(self.recipe.training.seed)
        arms = list(self.arms)
        # AdamW makes its moments in the first step; from here on they are part of everyone's memory.
        self.step(arms[0], self.arms[arms[0]].plan[0][:1])
        turns = self.grid.warmup + self.grid.batches
        done = 0
        for turn in range(turns):
            timed = turn - self.grid.warmup
            for i in rng.permutation(len(arms)):
                self._turn(arms[i], timed, turn)
                done += 1
                listener.advance(
                    "measuring", done, turns * len(arms), {"arm": " ".join(map(str, asdict(arms[i]).values()))}
                )
            if timed >= 0 and timed % max(1, self.grid.batches // _MATRIX_TURNS) == 0:
                for rate in self.rates.values():
                    rate.measure()
        listener.finish("measuring")

    def step(self, arm: Arm, indices: NDArray[np.int64]) -> None:
        """One training step of an arm, whole."""
        self.network.forward = self.forwards[arm.precision]
        padding = replace(self.loaded.padding, width=arm.max_length if arm.padding == "fixed" else None)
        engine = TrainingEngine(
            replace(self.loaded, padding=padding),
            self.network,
            self.optimizer,
            self.schedule,
            self.accelerator,
            self.compute[arm.precision],
            self.recipe.optimizer.max_grad_norm,
        )
        micro_batches = self.recipe.training.accumulation_steps
        training_step(engine, self.task, self.features[arm.max_length], indices, micro_batches=micro_batches)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        synchronize(self.device)

    def profile(self) -> dict[str, float]:
        """Where the default arm's time goes, by kind of work."""
        lengths = self.features[self.default.max_length].lengths
        by_width = sorted(self.arms[self.default].plan, key=lambda batch: int(lengths[batch].max()))
        chosen = evenly(by_width, min(_PROFILED_STEPS, len(by_width)))
        batches = iter(chosen)
        return time_by_kind(
            lambda: self.step(self.default, next(batches)), self.compute[self.default.precision], repeats=len(chosen)
        )

    def document(self) -> dict[str, Any]:
        """All figures but the profile."""
        import torch

        arms = [self._figures(arm, measured) for arm, measured in self.arms.items()]
        return {
            "schema": SCHEMA,
            "recipe": self.recipe.name,
            "model": self.recipe.model.name,
            "random_init": self.grid.random_init,
            "device": self.device,
            "device_name": torch.cuda.get_device_name() if self.device == "cuda" else self.device,
            "threads": self.compute[self.default.precision].threads,
            "torch": str(torch.__version__),
            "batches": self.grid.batches,
            "warmup": self.grid.warmup,
            "min_words": self.grid.min_words,
            "matrix_flops": {name: rate.flops for name, rate in self.rates.items()},
            "arms": [self._with_ratios(figures, arms) for figures in arms],
        }

    def _turn(self, arm: Arm, timed: int, turn: int) -> None:
        measured = self.arms[arm]
        if turn == 0:
            reset_peak_memory(self.device)
        if timed < 0:
            self.step(arm, measured.warm[turn])
        else:
            started = time.perf_counter()
            self.step(arm, measured.plan[timed])
            measured.seconds.append(time.perf_counter() - started)
        if turn == 0:
            measured.peak_memory = read_peak_memory(self.device)

    def _batches(self, padding: str, batch_size: int) -> Measured:
        """The arm's batches: of like lengths as the epochs' plan has them, or the same rows mixed."""
        lengths = self.features[max(self.grid.max_lengths)].lengths
        seed = self.recipe.training.seed
        plan: Plan = []
        for epoch in itertools.count():
            plan += training_plan(lengths, batch_size, seed=seed, epoch=epoch)
            if len(plan) >= self.grid.batches:
                break
        batches = evenly(sorted(plan, key=lambda batch: int(lengths[batch].max())), self.grid.batches)
        rng = np.random.default_rng([seed, batch_size])
        if padding == "length":
            batches = [batches[i] for i in rng.permutation(len(batches))]
        else:
            batches = np.array_split(rng.permutation(np.concatenate(batches)), self.grid.batches)
        widest = sorted(batches, key=lambda batch: -int(lengths[batch].max()))
        return Measured(batches, list(itertools.islice(itertools.cycle(widest), self.grid.warmup)))

    def _figures(self, arm: Arm, measured: Measured) -> dict[str, Any]:
        features = self.features[arm.max_length]
        shapes = [shape for batch in measured.plan for shape in self._shapes(arm, batch)]
        seconds = sum(measured.seconds)
        rows = np.concatenate(measured.plan)
        tokens = int(features.lengths[rows].sum())
        operations = sum(self.operations(examples, width) for examples, width in shapes)
        return {
            **asdict(arm),
            "default": arm == self.default,
            "examples_per_second": len(rows) / seconds,
            "tokens_per_second": tokens / seconds,
            "padding_share": 1.0 - tokens / sum(examples * width for examples, width in shapes),
            "matrix_rate_share": operations / seconds / self.rates[arm.precision].flops,
            "peak_memory_bytes": measured.peak_memory,
            "truncated_share": float(features.truncated[rows].mean()),
            "lost_token_share": float(
                features.truncated_tokens[rows].sum() / (tokens + features.truncated_tokens[rows].sum())
            ),
            "seconds": [round(each, 6) for each in measured.seconds],
        }

    def _shapes(self, arm: Arm, batch: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Examples and width of each part that a batch is computed in."""
        lengths = self.features[arm.max_length].lengths
        for part in np.array_split(batch, self.recipe.training.accumulation_steps):
            if len(part):
                yield len(part), arm.max_length if arm.padding == "fixed" else int(lengths[part].max())

    def _with_ratios(self, figures: dict[str, Any], arms: list[dict[str, Any]]) -> dict[str, Any]:
        """Beside fp32 with fixed and with dynamic padding, at the same batch size and length."""
        ratios: dict[str, float | None] = {}
        for padding in ("fixed", "dynamic"):
            baseline = Arm("fp32", padding, figures["batch_size"], figures["max_length"])
            rate = next((a["examples_per_second"] for a in arms if asdict(baseline).items() <= a.items()), None)
            ratios[f"ratio_to_fp32_{padding}"] = None if rate is None else figures["examples_per_second"] / rate
        seconds = figures.pop("seconds")
        return {**figures, **ratios, "seconds": seconds}


def forward_in(network: "nn.Module", compute: Compute) -> Callable[..., Any]:
    """The network's forward pass in a precision, as accelerate's `prepare_model` lays autocast around it."""
    plain: Callable[..., Any] = network.forward
    return plain if compute.precision == "fp32" else autocast(compute)(plain)  # type: ignore[operator]


@contextlib.contextmanager
def _source(recipe: Recipe, grid: Grid, listener: Listener) -> Iterator[ModelSource]:
    settings = recipe.model.model_copy(update={"max_length": max(grid.max_lengths)})
    if grid.random_init:
        with untrained_source(settings, listener=listener) as source:
            yield source
    else:
        yield inspect_model(settings)


def _sample(recipe: Recipe, grid: Grid, listener: Listener) -> tuple[Rows, Task]:
    """A pool of training rows as batches of like lengths are sorted in, drawn at random, and the task.

    Raises:
        DataError: no row has so many words.
    """
    data = load_data(recipe, listener=listener, splits=("train",))
    rows = data.splits["train"]
    task = task_from_data(recipe, rows, data.labels)
    long_enough = [i for i in range(len(rows)) if grid.min_words == 0 or _words(rows, i) > grid.min_words]
    if not long_enough:
        raise DataError(
            f"{rows.source}: none of {len(rows)} rows has more than {grid.min_words} words",
            remedy="Give a smaller --min-words, or leave it out.",
        )
    wanted = max(POOL_BATCHES, grid.batches) * max(grid.batch_sizes)
    drawn = np.random.default_rng(recipe.training.seed).permutation(long_enough)[:wanted]
    which = f" with more than {grid.min_words} words" if grid.min_words else ""
    listener.say(f"train: {len(long_enough)} of {len(rows)} rows{which}; the batches are made of {len(drawn)}")
    return rows.select(drawn.tolist()), task


def evenly(items: list[Item], count: int) -> list[Item]:
    """`count` of the items, evenly spaced from the first to the last."""
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]


def _words(rows: Rows, index: int) -> int:
    texts = [rows.columns[name][index] for name in ("text", "pair") if rows.has(name)]
    return sum(len(str(text).split()) for text in texts)


def _wanted(value: Item, choices: list[Item]) -> Item:
    """The value if it is one of the choices, else the last of them."""
    return value if value in choices else choices[-1]
