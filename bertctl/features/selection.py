"""Which layer and pooling.

A probe on each is trained and scored on the same rows, and they make a table.

The probe with the best cross-validation score on the training rows wins, so that the score on the
validation rows, which decided nothing, is an honest one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertctl.arrays import Array, Floats32, Ints, numbers_of, starts_of
from bertctl.data.splits import hold_out, joined
from bertctl.errors import UsageError
from bertctl.features.encoder import Encoder
from bertctl.inference.run_inputs import ReadyRun
from bertctl.metrics.value import MetricValue
from bertctl.modeling.classifiers import (
    ClassifierSettings,
    LinearFunction,
    choose_strength,
    fit,
    fit_mix,
    layer_mean,
)
from bertctl.modeling.folds import Folds
from bertctl.modeling.layers import LayerChoice
from bertctl.modeling.model import Model
from bertctl.run_folder import SCHEMA
from bertctl.runtime.device import Compute
from bertctl.tasks.base import Features
from bertctl.tasks.batches import present
from bertctl.tasks.registry import higher_is_better

_CHOICE_WORDS = 6_000
"""Words that the strength is chosen on. Strengths differ tenfold, so no more are needed, and five
folds of five strengths take as long as 25 fits."""


@dataclass(kw_only=True)
class ProbeJob(ReadyRun):
    """Probe made ready; its best probe is scored on the splits, every probe on the selection split.

    Attributes:
        model: The bare encoder.
        encoder: Gives its vectors.
        settings: Settings of the classifiers.
    """

    model: Model
    encoder: Encoder
    settings: ClassifierSettings

    @property
    def compute(self) -> Compute:
        """Returns where and how the encoder computes."""
        return self.encoder.engine.compute

    @property
    def by_word(self) -> bool:
        """Returns whether a row has a label for each word."""
        return "words" in self.task.columns

    @property
    def sign(self) -> int:
        """Returns 1 where a higher primary metric is better, else -1."""
        if higher_is_better(self.primary):
            return 1
        return -1


@dataclass(frozen=True)
class TrainedProbe:
    """Layer in one pooling, with the classifier trained on its vectors.

    Attributes:
        layer: The layer, or layers, that vectors come from.
        pooling: How vectors of tokens become one.
        cross_validation: Primary metric of the training rows, each answered without its fold.
        fitted: The classifier, fitted to all training rows.
        metrics: Its metrics on the validation rows.
        repeats: The primary metric on each of the other hold-outs.
    """

    layer: LayerChoice
    pooling: str
    cross_validation: float
    fitted: LinearFunction
    metrics: dict[str, MetricValue]
    repeats: tuple[float, ...]


def other_hold_outs(job: ProbeJob) -> list[tuple[Ints, Ints]]:
    """Returns repeated hold-out splits for `probe.repeats`, with consecutive seeds.

    Training and validation rows are put together and divided anew, in the same proportion.

    Returns:
        A pair for each repeat after the first, as indices among all those rows: the rows to train
        on, and the rows held out.
    """
    repeats = job.recipe.probe.repeats
    if repeats == 1:
        return []
    train = job.data.splits["train"]
    validation = job.data.splits[job.selection]
    rows = joined([train, validation])
    groups = job.data.groups_of("train", job.selection)
    fraction = len(validation) / len(rows)
    stratify = not job.settings.is_regression

    hold_outs = []
    first_seed = job.recipe.data.split_seed
    for seed in range(first_seed + 1, first_seed + repeats):
        rows_to_train, rows_held_out, _ = hold_out(
            rows,
            fraction=fraction,
            seed=seed,
            stratify=stratify,
            groups=groups,
        )
        # The ids of joined rows are their indices.
        train_indices = np.array([int(i) for i in rows_to_train.ids])
        held_out_indices = np.array([int(i) for i in rows_held_out.ids])
        hold_outs.append((train_indices, held_out_indices))
    return hold_outs


class ProbeTrainer:
    """Trains and scores one probe after the other on the same rows.

    Args:
        job: The job.
        labels: Labels of the training rows, then of the validation rows; or of their words.
        on_step: Called at each step of a solver.
    """

    def __init__(
        self, job: ProbeJob, labels: Array, *, on_step: Callable[[], None] | None = None
    ) -> None:
        self._job = job
        self._labels = labels
        self._on_step = on_step
        splits = ("train", job.selection)
        rows_of_splits = [job.data.splits[split] for split in splits]
        self._rows = joined(rows_of_splits)
        self._gold = []
        for rows in rows_of_splits:
            self._gold += [job.task.gold(rows, i) for i in range(len(rows))]
        # The group of each row, such as its author, which intervals of scores keep whole.
        self._clusters = job.data.groups_of(*splits)
        # (N,) number of the group of each row or word, which folds keep whole. For words it is
        # their sentence.
        if job.by_word:
            self._groups = _sentences(job)
        else:
            self._groups = numbers_of(self._clusters)[0]

    def check(self, rows: Ints) -> Folds:
        """Returns the folds of training rows, before their vectors are computed.

        Raises:
            UsageError: A learned mix of layers for several labels.
            DataError: Rows that can't be cross-validated; see `ClassifierSettings.folds_of`.
        """
        learned = [layer.name for layer, _ in self._job.encoder.pairs if layer.is_learned]
        if learned and self._job.settings.multi_label:
            message = f"'{learned[0]}' learns its mix with a logistic regression on one label"
            raise UsageError(message, remedy="Take other layers.")
        sample = self._chosen_on(rows)  # the same rows as in `_fit`
        return self._job.settings.folds_of(self._labels[rows][sample], self._groups[rows][sample])

    def train(
        self,
        pair: tuple[LayerChoice, str],
        vectors: Floats32,
        hold_outs: Sequence[tuple[Ints, Ints]],
    ) -> TrainedProbe:
        """Returns the probe on one layer in one pooling, scored on each hold-out.

        The probe of the first hold-out is returned. Further hold-outs only show how much the metric
        depends on which rows are held out.

        Args:
            pair: The layer and the pooling.
            vectors: (N, D) vectors of all rows, or of all words.
            hold_outs: For each the rows to train on, and the rows held out.
        """
        layer, pooling = pair
        train_rows, held_out_rows = hold_outs[0]
        score, fitted = self._fit(layer, vectors, train_rows)
        repeats = []
        for repeat_train_rows, repeat_held_out_rows in hold_outs[1:]:
            _, repeat_fitted = self._fit(layer, vectors, repeat_train_rows)
            # The value alone is kept, so few resamples are enough.
            repeat_metrics = self._score(
                repeat_fitted, vectors, repeat_held_out_rows, resamples=100
            )
            repeats.append(repeat_metrics[self._job.primary].value)
        resamples = self._job.recipe.evaluation.bootstrap_resamples
        metrics = self._score(fitted, vectors, held_out_rows, resamples=resamples)
        return TrainedProbe(
            layer,
            pooling,
            cross_validation=score,
            fitted=fitted,
            metrics=metrics,
            repeats=tuple(repeats),
        )

    def _fit(
        self, layer: LayerChoice, vectors: Floats32, rows: Ints
    ) -> tuple[float, LinearFunction]:
        """Returns the cross-validated metric of a probe, and the probe fitted to all these rows.

        Args:
            layer: The layer, or a mix of layers whose weights are learned.
            vectors: (N, D) vectors of all rows, or of all words.
            rows: Indices of the rows to train on.
        """
        train_vectors = vectors[rows]
        labels = self._labels[rows]
        settings = self._job.settings
        # The strength of the regularisation is chosen on a sample if there are many words.
        sample = self._chosen_on(rows)
        groups = self._groups[rows][sample]

        # A row that is the only one with its label is never held out. So no probe has answered it
        # unseen, and it is not scored.
        is_held_out = settings.folds_of(labels[sample], groups).is_held_out
        scored_rows = rows[sample][is_held_out]

        def score(logits: Floats32) -> float:
            """Returns the primary metric of cross-validated logits, negated if less is better.

            A metric that can't be computed is the worst of all.
            """
            lines = self._lines(logits[is_held_out], scored_rows)
            contribution = self._job.task.answers.contributions(lines, self._job.primary)
            if contribution is not None and np.isfinite(contribution.value):
                return self._job.sign * contribution.value
            return -np.inf

        # The strength of a mix is chosen on the plain mean of its layers: to learn a mix for each
        # strength would multiply the time by the number of strengths.
        n_layers = len(layer.states)
        vectors_to_choose_on = train_vectors[sample]
        if layer.is_learned:
            vectors_to_choose_on = layer_mean(vectors_to_choose_on, n_layers)
        strength, value = choose_strength(
            vectors_to_choose_on,
            labels[sample],
            settings,
            score,
            groups=groups,
            on_step=self._on_step,
        )
        metric = self._job.sign * value  # takes the sign of `score` back
        if not layer.is_learned:
            return metric, fit(train_vectors, labels, strength, settings)
        fitted = fit_mix(
            train_vectors,
            labels,
            strength,
            settings,
            layers=n_layers,
            few=sample,
        )
        return metric, fitted

    def _chosen_on(self, rows: Ints) -> Ints | slice:
        """Returns which training rows the strength of the regularisation is chosen on.

        These are all rows; for words, the words of a seeded sample of sentences.

        Args:
            rows: Indices of the training rows or words.
        """
        if not self._job.by_word:
            return slice(None)
        groups = self._groups[rows]
        sentences, counts = np.unique(groups, return_counts=True)
        order = np.random.default_rng(self._job.recipe.training.seed).permutation(len(sentences))
        # As many sentences, in random order, as it takes to reach the number of words.
        n_sentences = 1 + int(np.searchsorted(np.cumsum(counts[order]), _CHOICE_WORDS))
        return np.flatnonzero(np.isin(groups, sentences[order[:n_sentences]]))

    def _score(
        self, fitted: LinearFunction, vectors: Floats32, rows: Ints, *, resamples: int
    ) -> dict[str, MetricValue]:
        """Returns the task's metrics of these rows."""
        lines = self._lines(fitted.logits(vectors[rows]), rows)
        return self._job.task.answers.score(
            lines, resamples=resamples, seed=self._job.recipe.training.seed
        )

    def _lines(self, logits: Floats32, rows: Ints) -> list[dict[str, Any]]:
        """Returns gold and predicted answers of rows, in the form that metrics are computed from.

        For words, an answer is the tags of a whole sentence.

        Args:
            logits: (n, C) logits of rows or words.
            rows: (n,) indices of these rows or words; the words of a sentence are all there.
        """
        job = self._job
        answered = rows  # indices of rows, or of sentences
        # Answers of texts are decoded from the logits alone, so any features and rows will do.
        features = self._job.features["train"]
        decoded_rows = self._rows
        if job.by_word:
            # The words are grouped into their sentences: which ones, and how long each is.
            answered, counts = np.unique(self._groups[rows], return_counts=True)
            features = replace(features, starts=starts_of(counts))  # type: ignore[type-var]
            decoded_rows = decoded_rows.select(answered.tolist())
        answers = job.task.decode({"logits": logits}, features, decoded_rows)
        return [
            {"gold": self._gold[i], "cluster": self._clusters[i], **answer}
            for i, answer in zip(answered, answers, strict=True)
        ]


def labels_of(features: Features) -> Array:
    """Returns the labels of a split, one per row or per word."""
    return present(features.labels)  # type: ignore[attr-defined]


def _sentences(job: ProbeJob) -> Ints:
    """Returns the number of each word's sentence; sentences of the training rows come first."""
    features: list[Any] = [job.features[split] for split in ("train", job.selection)]
    counts = np.concatenate([np.diff(split_features.starts) for split_features in features])
    return np.repeat(np.arange(len(counts)), counts)


def table_document(
    job: ProbeJob, table: Sequence[TrainedProbe], best: TrainedProbe, folds: Folds
) -> dict[str, Any]:
    """Returns what metrics.json has under `probe`: classifier, best probe, folds, and a table.

    Args:
        job: The job.
        table: All probes, a row each.
        best: The one that was kept.
        folds: Folds of cross-validation.
    """
    rows = []
    for probe in table:
        row: dict[str, Any] = {
            "layer": probe.layer.name,
            "pooling": probe.pooling,
            "strength": probe.fitted.strength,
            "cross_validation": probe.cross_validation,
            job.primary: probe.metrics[job.primary].as_json(),
        }
        if probe.fitted.mix is not None:
            row["mix"] = [round(float(weight), 6) for weight in probe.fitted.mix]
        if probe.repeats:
            values = np.array([probe.metrics[job.primary].value, *probe.repeats])
            row["hold_outs"] = {
                "n": len(values),
                "mean": float(values.mean()),
                "deviation": float(values.std(ddof=1)),
            }
            row["hold_outs"]["values"] = values.tolist()
        rows.append(row)
    chosen = {"layer": best.layer.name, "pooling": best.pooling}
    return {
        "schema": SCHEMA,
        "classifier": job.settings.classifier,
        "best": chosen,
        "folds": folds.number,
        "table": rows,
    }
