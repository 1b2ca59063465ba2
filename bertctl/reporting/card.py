"""The model card: RUN/model/README.md.

It has the metadata that the Hugging Face hub reads and a page for a person.

It says nothing that differs between two equal runs: no date, no time taken, no path of the machine.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.catalog.datasets import builtin_datasets
from bertctl.catalog.models import MODELS
from bertctl.documents import loading
from bertctl.modeling.families import model_positions
from bertctl.modeling.output_names import output_names
from bertctl.reporting.baseline_results import baselines_table
from bertctl.reporting.document import Column, TableBlock
from bertctl.reporting.markdown import code_span, escaped, table_lines
from bertctl.reporting.outcomes import calibration_error
from bertctl.reporting.report import RunContents, decision_words, gather
from bertctl.reporting.summary import figure, results_table, training_sentences
from bertctl.run_folder import DAMAGED, RunFolder
from bertctl.tasks.registry import find_metric, headline, task_type
from bertctl.writing import write_text

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

_MOST_LABELS = 100


def write_card(folder: RunFolder) -> None:
    """Writes RUN/model/README.md from what the run folder holds.

    Without a model, as for a probe, it writes nothing.

    Raises:
        UnavailableError: the run has not finished, or the place can't be written.
        DataError: a file of the run is damaged.
    """
    if folder.model.is_dir():
        write_text(folder.model / "README.md", card_text(folder))


def card_text(folder: RunFolder) -> str:
    """Returns the card: metadata between `---` lines, then the page."""
    contents = gather(folder.path)
    config = folder.read(folder.model / "config.json")
    with loading(f"the run {folder.path}", remedy=DAMAGED):
        return f"---\n{_metadata(contents)}---\n\n{_page(contents, config)}"


def _metadata(run: RunContents) -> str:
    """Returns the YAML block, made by the hub's own library."""
    from huggingface_hub import ModelCardData

    row = builtin_datasets().get(str(run.recipe["data"].get("name")))
    results = _results(run, row)
    data = ModelCardData(
        library_name="transformers",
        base_model=base_model(str(run.recipe["model"]["name"])),
        pipeline_tag=run.answers.pipeline or run.task,
        tags=["bertctl", run.task, *run.answers.tags],
        datasets=[row.hub.repo] if row and row.hub else None,
        metrics=sorted({result.metric_type for result in results if result.metric_type != "loss"}),
        model_name=str(run.recipe["name"]),
        eval_results=results,
    )
    return str(data.to_yaml()) + "\n"


def base_model(name: str) -> str | None:
    """Returns the hub's id of the model that the recipe names.

    It is None for a folder, whose path means nothing elsewhere.
    """
    row = MODELS.get(name)
    if row is not None:
        return row.hub_id
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) and not Path(name).exists():
        return name
    return None


def _results(run: RunContents, row: DatasetRow | None) -> "list[EvalResult]":
    """Returns the scores of the run as the hub's own records, one for each split and metric.

    Args:
        run: The run.
        row: The data set's entry in the catalog, if it has one.
    """
    from huggingface_hub import EvalResult

    results = []
    for split, metrics_of_split in run.metrics.metrics.items():
        dataset_config, revision = _source(row, split)
        chosen_settings = run.chosen_on(split)
        if chosen_settings:
            metric_args = {"chosen on this split": sorted(chosen_settings)}
        else:
            metric_args = None
        for name in headline(metrics_of_split, run.primary):
            is_chosen_here = name.startswith("best_")  # on the examples that it is scored on
            value = metrics_of_split[name].value
            if is_chosen_here or value is None:
                continue
            results.append(
                EvalResult(
                    task_type=run.answers.pipeline or run.task,
                    dataset_type=row.hub.repo if row and row.hub else "unknown",
                    dataset_name=str(run.recipe["data"].get("name") or run.recipe["name"]),
                    dataset_config=dataset_config,
                    dataset_split=split,
                    dataset_revision=revision,
                    metric_type=_hub_name(name),
                    metric_name=name,
                    metric_value=round(value, 6),
                    metric_args=metric_args,
                )
            )
    return results


def _hub_name(name: str) -> str:
    """Returns the hub's name of a metric, or its name here if the hub has none."""
    # A metric of one label, such as `f1:positive`, is not one of the hub's.
    if ":" not in name:
        metric = find_metric(name)
    else:
        metric = None
    if metric is None or not metric.hub_name:
        return name
    return metric.hub_name


def _source(row: DatasetRow | None, split: str) -> tuple[str | None, str | None]:
    """Returns configuration and revision of a split on the hub; None for what is not known.

    The configuration is the folder of the split's file in the repository, such as `sst2`. A file in
    `data` or in no folder is of the only configuration, which has no name.
    """
    if row is None or row.hub is None or split not in row.split_names:
        return None, None
    folder, slash, _ = row.hub.file_of(split).partition("/")
    is_in_folder = bool(slash)
    if is_in_folder and folder != "data":
        return folder, row.hub.revision
    return None, row.hub.revision


def _page(run: RunContents, config: Mapping[str, Any]) -> str:
    """Returns the page below the metadata, as Markdown."""
    parts = [f"# {escaped(str(run.recipe['name']))}", _summary(run)]
    if run.recipe.get("description"):
        parts.append(escaped(str(run.recipe["description"])))
    parts += ["## Results", _results_table(run)]
    beside = baselines_table(run.metrics)
    if beside is not None:
        parts.append(table_lines(beside).rstrip("\n"))
    parts += [escaped(sentence) for sentence in training_sentences(run.metrics)]
    if run.answered:
        ece = calibration_error(run.answered, run.answers.from_lines(run.answered))
    else:
        ece = None
    if ece is not None:
        parts.append(f"Expected calibration error on {escaped(run.shown)}, 15 bins: {figure(ece)}.")
    if run.decision is not None:
        parts.append(
            "In `bertctl predict`, not in plain transformers: "
            f"{escaped(decision_words(run.decision))}"
        )
    parts += ["## Use", _use(run, config)]
    labels = _labels(config)
    if labels:
        parts += ["## Labels", labels]
    parts += ["## Training", _training(run)]
    return "\n\n".join(parts) + "\n"


def _summary(run: RunContents) -> str:
    """Returns `MODEL, fine-tuned on DATA for TASK with bertctl.`, with links to the hub."""
    base_id = base_model(str(run.recipe["model"]["name"]))
    if base_id:
        model = f"[{base_id}](https://huggingface.co/{base_id})"
    else:
        model = "an encoder of our own"
    name = run.recipe["data"].get("name")
    row = builtin_datasets().get(str(name))
    data = escaped(str(name or "files of our own"))
    if row and row.hub:
        data = f"[{data}](https://huggingface.co/datasets/{row.hub.repo})"
    return f"{model}, fine-tuned on {data} for {run.task} with bertctl."


def _results_table(run: RunContents) -> str:
    """Returns the table of metrics as Markdown."""
    table = results_table(run.metrics)
    caption = f"majority: the answer that ignores the text. {table.caption}".rstrip()
    return table_lines(replace(table, caption=caption)).rstrip("\n")


def _use(run: RunContents, config: Mapping[str, Any]) -> str:
    """Returns example code that loads the model, and what was done with long inputs."""
    # A prediction shows whether the model reads pairs of texts.
    example_line = run.answered[0] if run.answered else {}
    code = run.answers.usage_snippet(example_line, task_type(run.task).auto_class)
    limit = run.recipe["model"].get("max_length")
    length_note = ""
    if limit:
        if run.answers.in_windows:
            long_inputs = "read in windows"
        else:
            long_inputs = "cut"
        long_text = config.get("long_text")
        if long_text:
            long_text_fields = ", ".join(f"{name} {value}" for name, value in long_text.items())
            # It has the next sentence, too, up to the period: "Plain transformers cuts."
            long_inputs = (
                f"read by bertctl as config.json says ({long_text_fields}: `bertctl docs "
                "long-texts`). Plain transformers cuts"
            )
        length_note = (
            f"It was trained on inputs of at most {limit} tokens; longer texts were {long_inputs}."
        )
        positions = model_positions(dict(config))
        length_note += f" The encoder takes {positions} tokens." if positions else ""
    example = f'```python\nMODEL = "."  # this folder, or its id on the hub\n\n{code}\n```'
    return f"{example}\n\n{length_note}"


def _labels(config: Mapping[str, Any]) -> str:
    """Returns the labels' names as code spans; empty if they are LABEL_0 and so on."""
    if config.get("id2label"):
        names = output_names(config)
    else:
        names = ()
    if not names or all(re.fullmatch(r"LABEL_\d+", name) for name in names):
        return ""
    if len(names) > _MOST_LABELS:
        number_left_out = f", and {len(names) - _MOST_LABELS} more"
    else:
        number_left_out = ""
    return ", ".join(code_span(name) for name in names[:_MOST_LABELS]) + number_left_out


def _steps_of_weights(run: RunContents) -> Any:
    """Returns the steps whose weights the model has: one, or those of a mean."""
    average = run.metrics.average
    if average is not None and average.kept:
        return f"{', '.join(map(str, average.steps))} (mean)"
    return run.metrics.best_step


def _training(run: RunContents) -> str:
    """Returns the table of settings, counts of examples and versions as Markdown."""
    training = run.recipe.get("training", {})
    optimizer = run.recipe.get("optimizer", {})
    environment = run.environment()
    settings = {
        "epochs": training.get("epochs"),
        "batch size": training.get("batch_size"),
        "learning rate": optimizer.get("learning_rate"),
        "weight decay": optimizer.get("weight_decay"),
        "warm-up": optimizer.get("warmup_fraction"),
        "seed": training.get("seed"),
        "longest input": run.recipe["model"].get("max_length"),
        "precision": environment.precision,
        "optimizer steps": run.metrics.steps,
        "weights of step": _steps_of_weights(run),
    }
    data = run.metrics.data
    settings |= {f"examples, {split}": counts.examples for split, counts in data.items()}
    settings |= {
        f"cut at the longest input, {split}": counts.truncated for split, counts in data.items()
    }
    settings |= {f"read in windows, {split}": counts.windowed for split, counts in data.items()}
    settings |= {
        "bertctl": environment.bertctl,
        "recipe hash": environment.recipe_hash or None,
    }
    settings |= {name: environment.packages.get(name) for name in ("torch", "transformers")}
    rows = [[name, str(value)] for name, value in settings.items() if value is not None]
    return table_lines(TableBlock([Column("setting"), Column("value")], rows)).rstrip("\n")
