"""Footnotes of a sweep: which runs did not end as planned, and with what score they count."""

from collections.abc import Mapping
from typing import Any

from bertctl.reporting.escape import one_line
from bertctl.reporting.summary import figure
from bertctl.sweeps.setting_text import seed_text, setting_text
from bertctl.words import count

_NAMED = 3
_WORTH = {
    "collapsed": "one answer to every example, at the end or when it was stopped; counts with its best score",
    "failed": "can't be valued, so it is in no mean",
    "missing": "not there or not finished, so in no mean",
}


def footnotes(document: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each thing that a reader of the table has to know.

    Args:
        document: content of sweep.json, without the notes.
    """
    counts, chosen = document["counts"], document["chosen"]
    baseline = document["baseline"]
    majority = (
        "without answers; the majority's score is not known, so it counts with the worst score of all runs"
        if baseline is None
        else f"without answers; counts with the majority's score, {figure(baseline)}"
    )
    worth = {"diverged": majority, **_WORTH}
    notes = [f"{state}, {_runs(document, state)}: {worth[state]}" for state in worth if counts[state]]
    if counts["missing"] and document["shard"]:
        number, shards = document["shard"]
        notes.append(f"this is shard {number} of {shards}; `bertctl sweep-merge` puts the shards together")
    if document["folds"] is not None:
        notes += _folds(document)
    if chosen is None:
        return [*notes, "no run has a score, so nothing is chosen"]
    if chosen["by"] == "best-run":
        notes.append(
            f"chosen as the best of {count(chosen['of'], 'run')}: its score is too good to be expected again, "
            "and says nothing of the setting's other seeds"
        )
    if chosen["expected"] is None:
        notes.append(f"what to expect is not corrected for the choice: {chosen['not_corrected']}")
    elif all(row["n"] == 1 for row in document["settings"] if row["n"]):
        notes.append("with one seed per setting, what to expect still holds the luck of that seed")
    if chosen["run"] is None:
        notes.append("no run of the chosen setting was trained to its end, so there is no best.yaml")
    if any(row["n"] > chosen["n"] for row in document["settings"]):
        notes.append(f"the chosen setting has {count(chosen['n'], 'score')}, others have more")
    elif chosen["n"] == 1 and len(document["settings"]) > 1:
        notes.append("one score per setting: a good setting can't be told from a lucky seed")
    return notes


def _runs(document: Mapping[str, Any], state: str) -> str:
    """Returns `2 runs (learning_rate 1 with seed 1, ...)`, and why they failed where that is known."""
    rows = [row for row in document["runs"] if row["state"] == state]
    values, seeds = {row["setting"]: row["values"] for row in document["settings"]}, document["seeds"]
    names = [
        f"{setting_text(values[row['setting']], document['axes'])} with {seed_text(seeds[row['seed']])}"
        + ("" if row["fold"] is None else f", fold {row['fold']}")
        + (f": {one_line(row['message'], limit=120)}" if row["message"] and state == "failed" else "")
        for row in rows[:_NAMED]
    ]
    more = "" if len(rows) <= _NAMED else f"; and {len(rows) - _NAMED} more"
    return f"{count(len(rows), 'run')} ({'; '.join(names)}{more})"


def _folds(document: Mapping[str, Any]) -> list[str]:
    valued = [score for score in document["scores"] if score["value"] is not None]
    means = sum(score["how"] == "mean of folds" for score in valued)
    K = document["folds"]
    notes = []
    if means < len(valued):
        notes.append(f"a score is that of the answers of all {K} folds together, each from the run that did not see it")
    if means:
        notes.append(
            f"{count(means, 'score')} of {len(valued)}: the mean over the {K} folds, as their answers can't be "
            "scored together"
        )
    return notes
