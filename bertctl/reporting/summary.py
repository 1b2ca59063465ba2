"""The tables at the end of a run, read from its metrics.json.

They are for a terminal and for reports alike.
"""

from collections.abc import Mapping
from typing import Any

from bertctl.catalog.datasets import builtin_datasets
from bertctl.metrics.clusters import FEW
from bertctl.reporting.document import Cell, Column, TableBlock
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.tasks.registry import headline
from bertctl.words import count, visible


def results_table(metrics: MetricsDocument, *, dataset: str | None = None) -> TableBlock:
    """Returns a row per split and metric, the primary one first.

    Args:
        metrics: content of metrics.json.
        dataset: catalog name, for the published score; shown beside its own metric with the split
            it stands for.
    """
    numbers = ("value", "95 % interval", "n", "clusters", "majority")
    columns = [
        Column("split"),
        Column("metric"),
        *(Column(name, number=True) for name in numbers),
        Column("published"),
    ]
    primary = metrics.primary
    row = builtin_datasets().get(dataset or "")
    source = ""
    rows: list[list[str | Cell]] = []
    for split, metrics_of_split in metrics.metrics.items():
        for name in headline(metrics_of_split, primary.name):
            metric = metrics_of_split[name]
            baseline = baseline_of(metrics, split, name)
            if row:
                published = row.published_for(split, name)
            else:
                published = None
            if published:
                source = published.source
            score_texts = (
                metric_name(name, metrics),
                figure(metric.value),
                interval(metric.low, metric.high),
            )
            counts = (f"{metric.n:,}", clusters_text(metric.clusters))
            if published:
                published_score = f"{figure(published.value)} ({published.split})"
            else:
                published_score = ""
            score_cells = [Cell(text, strong=name == primary.name) for text in score_texts]
            rows.append([split, *score_cells, *counts, figure(baseline), published_score])
    sentences = [*selection_sentences(metrics), *decision_sentences(metrics)]
    caption = " ".join([*([f"Published: {source}."] if source else []), *sentences])
    return TableBlock(columns, rows, caption)


def selection_sentences(metrics: MetricsDocument) -> list[str]:
    """Returns a sentence for each split by which something was chosen."""
    chosen: dict[str, list[str]] = {}
    for name, choice in metrics.selected_on.items():
        chosen.setdefault(choice.split, []).append(choice_text(name, choice.of))
    sentences: list[str] = []
    for split, names in chosen.items():
        if split in metrics.metrics:
            effect = ", so its scores are slightly optimistic"
        else:
            effect = ""
        sentences.append(f"Chosen on {split}: {', '.join(names)}{effect}.")
    return sentences


def training_sentences(metrics: MetricsDocument) -> list[str]:
    """Returns a sentence for each reason to train longer.

    The reasons are a time limit, and scores that were still improving.
    """
    sentences = []
    limited = metrics.time_limit
    if limited is not None:
        sentences.append(
            f"The time limit of {limited.limit} ended the training at {limited.epochs:g} of "
            f"{count(limited.whole_epochs, 'epoch')} (step {limited.steps:,} of "
            f"{limited.whole_steps:,})."
        )
    improving = metrics.still_improving
    if improving is not None:
        values = ", ".join(figure(value) for value in improving.values[-4:])
        sentences.append(
            f"The run was still improving when it ended ({improving.split} {improving.metric}: "
            f"{values}). Train longer with `{improving.option}`."
        )
    return sentences


def fit_sentence(fit: Mapping[str, Any], *, whole_steps: int, whole_epochs: int) -> str:
    """Returns how much of a run fits into its time limit, as a clause.

    Args:
        fit: `limit`, `steps`, `epochs` and whether it `fits`.
        whole_steps: Steps of the whole run.
        whole_epochs: Its epochs.
    """
    if fit["fits"]:
        return f"the whole run fits into {fit['limit']}"
    return (
        f"about {fit['steps']:,} of {whole_steps:,} steps fit into {fit['limit']} "
        f"({fit['epochs']:g} of {count(whole_epochs, 'epoch')})"
    )


def decision_sentences(metrics: MetricsDocument) -> list[str]:
    """Returns a sentence for each split on the threshold and temperature that it is scored with.

    There is no sentence if every split has been scored with the same ones.
    """
    text_by_split = {}
    for split, decision in metrics.decisions.items():
        values = []
        for name, value in decision.as_json().items():
            values.append(f"{name.replace('_', ' ')} {value:.4g}")
        text_by_split[split] = " and ".join(values) or "no threshold"
    have_all_one = set(text_by_split) == set(metrics.metrics)
    are_equal = len(set(text_by_split.values())) < 2
    if have_all_one and are_equal:
        return []
    return [
        f"{split} is scored with {decision_text}." for split, decision_text in text_by_split.items()
    ]


def choice_text(name: str, n_candidates: int) -> str:
    """Returns what was chosen among how many candidates, such as `epoch (best of 4)`.

    If their number is not known (1), it is the name alone.
    """
    if n_candidates > 1:
        return f"{name} (best of {n_candidates})"
    return name


def metric_name(name: str, metrics: MetricsDocument) -> str:
    """Returns a metric's name for a person; `f1` of two labels names the positive label."""
    positive = metrics.positive_label
    if positive and name == "f1":
        return f"{name} of {visible(positive)}"
    return name


def baseline_of(metrics: MetricsDocument, split: str, name: str) -> float | None:
    """Returns a metric of the answer that ignores the input; None where it is not known."""
    return metrics.baseline.get(split, {}).get(name)


def figure(value: float | None) -> str:
    """Returns a value with four decimals; nothing for a value that is not known.

    A set of 872 examples has steps of 0.0011.
    """
    if value is None:
        return ""
    return f"{value:.4f}"


def clusters_text(number: int | None) -> str:
    """Returns how many groups of examples an interval rests on, and whether they are few.

    It is empty without groups.
    """
    if number is None:
        return ""
    if number < FEW:
        return f"{number:,} (few: rough)"
    return f"{number:,}"


def interval(low: float | None, high: float | None) -> str:
    """Returns `0.8712 to 0.9104`, or nothing where there is none."""
    if low is None or high is None:
        return ""
    return f"{figure(low)} to {figure(high)}"


def time_line(performance: PerformanceDocument, *, total: float) -> str:
    """Returns where the time went, in a line."""
    seconds = performance.seconds
    return (
        f"{total:.1f} s: training {seconds['train']:.1f} s "
        f"({performance.examples_per_second:.0f} examples/s, "
        f"{performance.tokens_per_second or 0.0:.0f} tokens/s, padding "
        f"{100 * (performance.padding_share or 0.0):.1f} %), "
        f"evaluation {seconds['evaluate']:.1f} s; peak memory "
        f"{performance.peak_memory_bytes / 1e9:.1f} GB"
    )
