"""The report of a run as a document.

It says which sections there are, and what of the run folder stands in each.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bertctl.config.load import load_recipe
from bertctl.config.presets import shown_values
from bertctl.config.recipe_files import builtin_recipes
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.documents import read_json_lines
from bertctl.errors import UsageError
from bertctl.inference.decision import Decision, read_decision
from bertctl.reporting import charts, outcomes
from bertctl.reporting.baseline_results import baselines_table
from bertctl.reporting.distillation_results import distillation_section
from bertctl.reporting.document import (
    Block,
    Cell,
    Chart,
    Column,
    Listing,
    Note,
    Report,
    Section,
    TableBlock,
    Tile,
    record_table,
)
from bertctl.reporting.few_shot_results import few_shot_section
from bertctl.reporting.mistakes import mistakes_section
from bertctl.reporting.probe_results import layer_chart, probe_table
from bertctl.reporting.runs import FinishedRun, read_run
from bertctl.reporting.summary import (
    baseline_of,
    figure,
    interval,
    metric_name,
    results_table,
    training_sentences,
)
from bertctl.run_documents.line_documents import HistoryLine
from bertctl.run_documents.metric_entry import MetricEntry
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_documents.probe_entry import ProbeEntry
from bertctl.run_folder import RunFolder
from bertctl.tasks.answers import Answers, Line
from bertctl.tasks.registry import answer_type, find_metric, headline
from bertctl.words import count, human_seconds, natural_order

PRETRAIN_RECIPE = "pretrain"
"""Name of the recipe whose task is pretraining."""

_OF_MACHINE = ("device", "precision", "threads")
"""Fields that every run resolves, so that they tell nothing of a choice; the environment has
them."""

_NAMED = 8
"""Runs of a folder that a refusal names."""

_SAMPLED = 4
"""Evaluations of which sample predictions are shown: the first, the last, and some between."""


@dataclass(frozen=True)
class RunContents(FinishedRun):
    """Finished run, with everything that its report shows.

    Attributes:
        folder: The run folder.
        shown: Split that the report is about.
        answered: Prediction lines of this split; empty if there are none.
        decision: Temperature and thresholds that were fitted for the run; None without.
    """

    folder: RunFolder
    shown: str
    answered: Sequence[Line]
    decision: Decision | None

    @property
    def name(self) -> str:
        """Returns the name of the run's folder."""
        return self.folder.path.resolve().name

    @property
    def task(self) -> str:
        """Returns the task, as in `recipe.task`."""
        return str(self.recipe["task"])

    @property
    def answers(self) -> type[Answers]:
        """Returns what the answers of its task mean."""
        return answer_type(self.task)


def gather(path: Path, *, split: str | None = None) -> RunContents:
    """Reads what a finished run has for a report.

    Args:
        path: RUN.
        split: which split's answers; `validation`, or the one that picked the weights, when left
            out.

    Raises:
        UsageError: a folder of several runs, metrics alone, or a split that was not scored.
        UnavailableError: no run, or one that has not finished.
        DataError: a file in it that is damaged.
    """
    _refuse_folder_of_runs(path)
    run = read_run(path)
    if run.folder is None or not run.recipe:
        message = f"{path} has metrics only; a report needs the recipe and predictions too"
        raise UsageError(message, remedy="Give the run's folder instead.")
    shown_split = run.split(split)
    if run.folder.predictions(shown_split).exists():
        answered = run.lines(shown_split)
    else:
        answered = []
    return RunContents(
        path=run.path,
        folder=run.folder,
        metrics=run.metrics,
        recipe=run.recipe,
        shown=shown_split,
        answered=answered,
        decision=read_decision(run.folder),
    )


def _refuse_folder_of_runs(path: Path) -> None:
    """Refuses a folder that is not a run but has runs in it, as a report is about one run.

    Raises:
        UsageError: It names the first runs.
    """
    if not path.is_dir() or (path / "status.json").exists():
        return
    names = [child.name for child in path.iterdir() if (child / "status.json").exists()]
    run_names = sorted(names, key=natural_order)
    if not run_names:
        return
    # A folder of a sweep may have hundreds of runs.
    if len(run_names) > _NAMED:
        unnamed_runs = f" and {len(run_names) - _NAMED} more, which `bertctl runs ls {path}` lists"
    else:
        unnamed_runs = ""
    named_runs = ", ".join(str(path / name) for name in run_names[:_NAMED])
    raise UsageError(
        f"{path} holds {count(len(run_names), 'run')}; a report is about one",
        remedy=f"Name one of them: {named_runs}{unnamed_runs}.",
    )


def build_report(
    run: RunContents, *, errors: int = 30, path: Path | None = None, more: Sequence[Section] = ()
) -> Report:
    """Returns the report of a run; sections for which the run has nothing are left out.

    Args:
        run: The run, as `gather` read it.
        errors: Number of wrong answers to show.
        path: File of the report, from which it links to other pages; None if it is not a file.
        more: Further sections, which need more than the run's files; they follow the answers.
    """
    answers: list[Section] = []
    if run.answered:
        meaning = run.answers.from_lines(run.answered)
        calibrated = run.decision is not None and run.decision.temperature is not None
        columns = run.recipe.get("evaluation", {}).get("slice_columns", ())
        answers = [
            outcomes.outcome_section(run.answered, meaning),
            outcomes.calibration_section(run.answered, meaning, calibrated=calibrated),
            outcomes.length_section(run.answered, meaning),
            outcomes.slice_section(run.answered, meaning, [*columns, "windows"]),
            mistakes_section(run.answered, meaning, limit=errors),
        ]
    sections = [
        _result(run),
        *_special_sections(run),
        _learning(run),
        *answers,
        *more,
        _pages(run, path),
        _data(run),
        _recipe(run),
        _environment(run),
    ]
    return Report(
        title=str(run.recipe.get("name", run.name)),
        subtitle=_subtitle(run),
        tiles=_tiles(run),
        sections=[section for section in sections if section.blocks],
    )


def _special_sections(run: RunContents) -> list[Section]:
    """Returns the sections that only some runs have: probes, few-shot training, students."""
    sections = []
    if run.metrics.probe is not None:
        sections.append(_layers(run, run.metrics.probe))
    if run.metrics.few_shot is not None:
        sections.append(few_shot_section(run.metrics.few_shot, run.metrics.primary))
    if run.folder.distillation.exists():
        sections.append(distillation_section(run.folder.read_distillation()))
    return sections


def _pages(run: RunContents, path: Path | None) -> Section:
    """Returns links from the report to the other pages in the run's folder, such as attention.

    Args:
        run: The run.
        path: File of the report. None if it is not a file: then the section is empty, as links are
            relative to this file.
    """
    pages = [
        page
        for page in sorted(run.folder.path.glob("*.html"))
        if page.name != "report.html" and page != path
    ]
    rows = []
    if path is not None:
        for page in pages:
            address = quote(os.path.relpath(page, path.parent))
            rows.append([Cell(page.name, data=True, link=f"./{address}")])
    return Section(
        "pages", "More pages", [TableBlock([Column("page")], rows)] if rows else [], brief=False
    )


def _subtitle(run: RunContents) -> str:
    """Returns task, model, data and run in a line."""
    data = run.recipe.get("data", {})
    source = data.get("name") or Path(str(data.get("train_file") or "own files")).name
    model = str(run.recipe.get("model", {}).get("name", ""))
    return f"{run.task} · {Path(model).name} · {source} · run {run.name}"


def _tiles(run: RunContents) -> list[Tile]:
    """Returns the tiles at the top of a report, each with a figure that is read first.

    They are the primary metric on the test splits and on the report's own split (`run.shown`), the
    majority's score, the calibration error of its predictions (`run.answered`), and training time.
    """
    scores = run.metrics.metrics
    metric = scores[run.shown].get(run.primary)
    # Test splits come first: nothing was chosen on them, so their scores are not optimistic.
    test_splits = [split for split in scores if split.startswith("test") and split != run.shown]
    tiles = [_score_tile(run, split) for split in test_splits if run.primary in scores[split]]
    if metric is not None:
        tiles.append(_score_tile(run, run.shown))
        baseline = baseline_of(run.metrics, run.shown, run.primary)
        if baseline is not None:
            tiles.append(Tile("majority", figure(baseline), "the answer that ignores the text"))
        tiles.append(Tile("examples scored", f"{metric.n:,}", run.shown))
    if run.answered:
        ece = outcomes.calibration_error(run.answered, run.answers.from_lines(run.answered))
    else:
        ece = None
    if ece is not None:
        tiles.append(Tile("calibration error", figure(ece), "0 is perfect"))
    seconds = run.performance().seconds.get("train")
    if seconds is not None:
        device = run.environment().device or "?"
        tiles.append(Tile("training", human_seconds(seconds), f"on {device}"))
    return tiles


def _score_tile(run: RunContents, split: str) -> Tile:
    """Returns the primary metric of a split with its interval."""
    metric = run.metrics.metrics[split][run.primary]
    spread = interval(metric.low, metric.high)
    name = metric_name(run.primary, run.metrics)
    return Tile(
        f"{name}, {split}",
        figure(metric.value) or "undefined",
        f"95 %: {spread}" if spread else "",
    )


def _result(run: RunContents) -> Section:
    """Returns the section of metrics, baselines, and what was chosen and fitted."""
    scores = run.metrics.metrics[run.shown]
    bounded = [name for name in headline(scores, run.primary) if _is_bounded(name, scores[name])]
    blocks: list[Block] = []
    if bounded:
        rows = [(name, scores[name], baseline_of(run.metrics, run.shown, name)) for name in bounded]
        drawn = partial(charts.metric_chart, rows)
        blocks.append(
            Chart(
                drawn,
                f"{run.shown}: value, 95 % interval, and (bar) the answer that ignores the text.",
            )
        )
    blocks.append(results_table(run.metrics, dataset=run.recipe.get("data", {}).get("name")))
    baselines = baselines_table(run.metrics)
    if baselines is not None:
        blocks.append(baselines)
    blocks += [Note(sentence) for sentence in training_sentences(run.metrics)]
    if run.decision is not None:
        blocks.append(Note(decision_words(run.decision)))
    return Section("result", "Result", blocks)


def _is_bounded(name: str, entry: MetricEntry) -> bool:
    """Returns whether a metric's value is there and fits an axis from -1 to 1."""
    if entry.value is None or not -1 <= entry.value <= 1:
        return False
    metric = find_metric(name)
    return metric is None or metric.is_fraction


def decision_words(decision: Decision) -> str:
    """Returns what was fitted for the run, in a sentence."""
    fitted = []
    if decision.temperature is not None:
        fitted.append(f"logits are divided by a temperature of {decision.temperature:.4g}")
    if decision.threshold is not None:
        if decision.positive:
            label = f"'{decision.positive}'"
        else:
            label = "a label"
        fitted.append(f"{label} counts from a probability of {decision.threshold:.4g}")
    if decision.null_threshold is not None:
        fitted.append(f"a question has no answer from null odds of {decision.null_threshold:.4g}")
    rules = " and ".join(fitted) or "nothing was chosen"
    if decision.n:
        examples = f"{decision.n} examples of "
    else:
        examples = ""
    # Such as the epoch, which was chosen on a split as well.
    other_splits = "".join(
        f"; the {name} on {of['split']}" for name, of in decision.selected_on.items()
    )
    return f"For prediction, {rules} (fitted on {examples}{decision.fitted_on}{other_splits})."


def _layers(run: RunContents, probe: ProbeEntry) -> Section:
    """Returns the layers and poolings that a probe compared."""
    blocks: list[Block] = [probe_table(probe, run.metrics)]
    if len(probe.table) > 1:
        drawn = partial(layer_chart, probe, run.metrics)
        blocks.insert(
            0, Chart(drawn, "Score by layer and pooling, with 95 % intervals.", wide=True)
        )
    return Section("layers", "Layers", blocks)


def _curve(history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Returns step and value of a column of the history, where it has one."""
    return [(line["step"], line[name]) for line in history if name in line]


def _learning(run: RunContents) -> Section:
    """Returns the section of losses and scores by step, and of samples of pretraining."""
    path = run.folder.history
    remedy = "Delete it to have a report without curves."
    if path.exists():
        history = read_json_lines(path, HistoryLine, remedy=remedy)
    else:
        history = []
    selection = run.metrics.primary.split
    training_losses = _curve(history, "loss")
    validation_losses = _curve(history, f"{selection}_loss")
    scores = _curve(history, f"{selection}_{run.primary}")
    best_step = run.metrics.best_step
    blocks: list[Block] = []
    if training_losses:
        blocks.append(
            Chart(
                partial(charts.loss_chart, training_losses, validation_losses),
                "Loss by optimizer step.",
            )
        )
    if scores:
        drawn = partial(
            charts.score_chart,
            scores,
            name=f"{selection} {run.primary}",
            best=best_step,
        )
        average = run.metrics.average
        weights_text = f"the weights of step {best_step} were kept"
        if average is not None and average.kept:
            weights_text = (
                f"the mean of the weights of steps {', '.join(map(str, average.steps))} was kept"
            )
        blocks.append(Chart(drawn, f"{run.primary} on {selection}; {weights_text}."))
    samples = [line for line in history if line.get("samples")]
    if samples:
        # Evenly from the first to the last; of few, each once.
        last_index = len(samples) - 1
        rows = []
        for i in sorted({round(k * last_index / (_SAMPLED - 1)) for k in range(_SAMPLED)}):
            step = f"{samples[i]['step']:,}"
            rows += [{"step": step, "text": text} for text in samples[i]["samples"]]
        blocks.append(
            record_table(
                rows, "Held-out text, as [masked token: what the model says].", data={"text"}
            )
        )
    return Section("learning", "Learning curves", blocks, brief=False)


def _data(run: RunContents) -> Section:
    """Returns the section of examples and tokens by split, and how many were cut."""
    numbers = ("examples", "cut", "tokens cut off", "unknown tokens", "tokens", "tokens each")
    columns = [Column("split"), *(Column(name, number=True) for name in numbers)]
    rows: list[list[str | Cell]] = []
    for split, counts in run.metrics.data.items():
        n_examples = counts.examples
        if n_examples and counts.truncated:
            share = f" ({100 * counts.truncated / n_examples:.1f} %)"
        else:
            share = ""
        row: list[str | Cell] = [split, f"{n_examples:,}", f"{counts.truncated:,}{share}"]
        row += [f"{k:,}" for k in (counts.lost_tokens, counts.unknown_tokens, counts.tokens)]
        rows.append([*row, f"{counts.tokens / n_examples:.1f}" if n_examples else ""])
    limit = run.recipe.get("model", {}).get("max_length")
    if not rows:
        return Section("data", "Data", [])
    windowed = run.answers.in_windows or any(
        counts.windowed for counts in run.metrics.data.values()
    )
    if windowed:
        treatment = "read in windows"
    else:
        treatment = "cut"
    return Section(
        "data",
        "Data",
        [TableBlock(columns, rows, f"An input longer than {limit} tokens is {treatment}.")],
    )


def _recipe(run: RunContents) -> Section:
    """Returns the section on the recipe: settings that differ from the built-in recipe of the task.

    The whole recipe is folded away below them.
    """
    if run.task == PRETRAINING:
        generic = PRETRAIN_RECIPE
    else:
        generic = run.task
    if generic in builtin_recipes():
        usual_recipe = load_recipe(generic)
    else:
        usual_recipe = Recipe()
    usual = shown_values(usual_recipe)
    rows: list[list[str | Cell]] = []
    for section, fields in run.recipe.items():
        if section in ("name", "description", "task") or not isinstance(fields, dict):
            continue
        usual_fields = usual.get(section, {})
        for name, value in fields.items():
            # Device, precision and threads differ between machines without anyone's choice.
            is_of_machine = section == "runtime" and name in _OF_MACHINE
            if is_of_machine or name not in usual_fields:
                continue
            usual_value = usual_fields[name]
            if value is None or value == usual_value:
                continue
            if isinstance(value, str):
                value_text = value
            else:
                value_text = json.dumps(value, ensure_ascii=False)
            if usual_value is None:
                default = "–"
            else:
                default = json.dumps(usual_value, ensure_ascii=False)
            rows.append(
                [
                    Cell(f"{section}.{name}", code=True),
                    Cell(value_text, data=True),
                    default.strip('"'),
                ]
            )
    blocks: list[Block] = []
    if run.recipe.get("description"):
        blocks.append(Note(str(run.recipe["description"]).strip()))
    if rows:
        columns = [Column("setting"), Column("here"), Column("default")]
        blocks.append(
            TableBlock(columns, rows, f"Settings that differ from those of the recipe {generic}.")
        )
    blocks.append(
        Listing("The whole recipe (recipe.yaml)", run.folder.recipe.read_text(encoding="utf-8"))
    )
    return Section("recipe", "Recipe", blocks, brief=False)


def _environment(run: RunContents) -> Section:
    """Returns the section of versions, hashes and speed."""
    environment = run.environment()
    facts = environment.as_json()
    rows: list[list[str | Cell]] = [
        [name.replace("_", " "), Cell(str(facts[name]), data=True)]
        for name in (
            "command",
            "bertctl",
            "python",
            "platform",
            "device",
            "precision",
            "threads",
            "seed",
        )
        if facts.get(name) is not None
    ]
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    if packages:
        rows.append(["packages", packages])
    hashes = {"recipe hash": environment.recipe_hash, "model hash": environment.model_hash}
    hashes |= {f"data hash, {split}": digest for split, digest in environment.data_hashes.items()}
    rows += [[name, Cell(str(digest), code=True)] for name, digest in hashes.items() if digest]
    rows += _speed(run.performance())
    table = TableBlock([Column(""), Column("")], rows)
    return Section("environment", "Environment", [table] if rows else [], brief=False)


def _speed(performance: PerformanceDocument) -> list[list[str | Cell]]:
    """Returns rows of time, speed and memory; those that were not measured are left out."""
    rows: list[list[str | Cell]] = []
    if performance.seconds:
        rows.append(
            [
                "time",
                ", ".join(
                    f"{phase} {human_seconds(value)}"
                    for phase, value in performance.seconds.items()
                ),
            ]
        )
    measured = []
    if performance.examples_per_second:
        measured.append(f"{performance.examples_per_second:,.0f} examples/s")
    if performance.tokens_per_second:
        measured.append(f"{performance.tokens_per_second:,.0f} tokens/s")
    if performance.padding_share is not None:
        measured.append(f"padding {100 * performance.padding_share:.1f} %")
    if measured:
        rows.append(["speed", ", ".join(measured)])
    if performance.peak_memory_bytes:
        rows.append(["peak memory", f"{performance.peak_memory_bytes / 1e9:.1f} GB"])
    return rows
