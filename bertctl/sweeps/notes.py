"""Notes on the result of a sweep: runs that did not end well, how scores were made, the choice."""

from bertctl.reporting.escape import one_line
from bertctl.reporting.summary import figure
from bertctl.run_documents.sweep_document import ChosenSetting, SweepDocument
from bertctl.sweeps.setting_text import seed_text, setting_text
from bertctl.words import count

_NAMED = 3
"""Most runs that a note on failed, diverged or other runs names."""

_WORTH = {
    "collapsed": "one answer to every example, at the end or when it was stopped; counts with its "
    "best score",
    "stopped": "had not the best scores at its rung; not trained to the end, so in no mean "
    "(without `halving=True` all are)",
    "failed": "can't be valued, so it is in no mean",
    "missing": "not there or not finished, so in no mean",
}
"""State of runs -> how they count, for the notes. What diverged runs count with depends on the
sweep (`_notes_on_states`)."""


def footnotes(document: SweepDocument) -> list[str]:
    """Returns the notes below the table of settings, a sentence each.

    They are on runs that did not end well, on how scores were computed, and on the choice.

    Args:
        document: Content of sweep.json, without the notes.
    """
    notes = _notes_on_states(document)
    if document.counts.missing and document.shard:
        number, shards = document.shard
        notes.append(
            f"this is shard {number} of {shards}; `bertctl sweep-merge` puts the shards together"
        )
    if document.folds is not None:
        notes += _folds(document)
    if document.chosen is None:
        return [*notes, "no run has a score, so nothing is chosen"]
    return notes + _notes_on_choice(document, document.chosen)


def _notes_on_states(document: SweepDocument) -> list[str]:
    """Returns a note for each state of runs that did not end well: which runs, how they count."""
    baseline = document.baseline
    if baseline is None:
        diverged = (
            "without answers; the majority's score is not known, so it counts with the worst score "
            "of all runs"
        )
    else:
        diverged = f"without answers; counts with the majority's score, {figure(baseline)}"
    notes = []
    for state, how_they_count in {"diverged": diverged, **_WORTH}.items():
        if document.counts.of_state(state):
            notes.append(f"{state}, {_runs(document, state)}: {how_they_count}")
    return notes


def _notes_on_choice(document: SweepDocument, chosen: ChosenSetting) -> list[str]:
    """Returns notes on what the scores of the chosen setting are worth."""
    notes = []
    if chosen.by == "best-run":
        notes.append(
            f"chosen as the best of {count(chosen.of, 'run')}: its score is too good to be "
            "expected again, and says nothing of the setting's other seeds"
        )
    if chosen.expected is None:
        notes.append(f"what to expect is not corrected for the choice: {chosen.not_corrected}")
    elif all(row.n == 1 for row in document.settings if row.n):
        notes.append("with one seed per setting, what to expect still holds the luck of that seed")
    if chosen.run is None:
        notes.append(
            "no run of the chosen setting was trained to its end, so no best.yaml was written"
        )
    halving = document.halving
    if halving is not None:
        notes.append(
            f"successive halving: {halving.steps:,} of the {halving.full_steps:,} steps of the "
            "full grid; settings that were stopped are not among those the choice is corrected for"
        )
    if any(row.n > chosen.n for row in document.settings):
        notes.append(f"the chosen setting has {count(chosen.n, 'score')}, others have more")
    elif chosen.n == 1 and len(document.settings) > 1:
        notes.append("one score per setting: a good setting can't be told from a lucky seed")
    return notes


def _runs(document: SweepDocument, state: str) -> str:
    """Returns the runs in a state as text, such as `2 runs (learning_rate 1 with seed 1; ...)`.

    The first three runs are named, failed runs with their message. Further runs are only counted.
    """
    rows = [row for row in document.runs if row.state == state]
    values = document.values_by_setting
    seeds = document.seeds
    names = []
    for row in rows[:_NAMED]:
        setting = setting_text(values[row.setting], document.axes)
        name = f"{setting} with {seed_text(seeds[row.seed])}"
        if row.fold is not None:
            name += f", fold {row.fold}"
        if row.message and state == "failed":
            name += f": {one_line(row.message, limit=120)}"
        names.append(name)
    if len(rows) > _NAMED:
        names.append(f"and {len(rows) - _NAMED} more")
    return f"{count(len(rows), 'run')} ({'; '.join(names)})"


def _folds(document: SweepDocument) -> list[str]:
    """Returns notes on how the scores of K folds were computed.

    The score of a seed is that of all folds' predictions together, or else the mean over the folds.
    """
    valued = [score for score in document.scores if score.value is not None]
    n_means = sum(score.how == "mean of folds" for score in valued)
    K = document.folds
    notes = []
    if n_means < len(valued):
        notes.append(
            f"a score is that of the answers of all {K} folds together, each from the run that did "
            "not see it"
        )
    if n_means:
        notes.append(
            f"{count(n_means, 'score')} of {len(valued)}: the mean over the {K} folds, as their "
            "answers can't be scored together"
        )
    return notes
