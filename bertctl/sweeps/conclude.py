"""What a sweep found: one document from its runs, written as sweep.json, sweep.html, best.yaml and pictures.

The document holds nothing that differs between two equal sweeps, except under `performance`: a sweep that was stopped
and went on writes the same one as an undisturbed sweep.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertctl.config.dump import dump_recipe
from bertctl.config.load import load_recipe
from bertctl.errors import BertctlError
from bertctl.progress import SILENT, Listener
from bertctl.reporting.summary import figure
from bertctl.run_folder import SCHEMA, RunFolder, write_json, write_text
from bertctl.sweeps.expected import expected_best
from bertctl.sweeps.notes import footnotes
from bertctl.sweeps.page import sweep_page
from bertctl.sweeps.pictures import draw_expected, draw_scores
from bertctl.sweeps.results import Cell, Score, SettingScores, by_setting, count_states, read_cells
from bertctl.sweeps.select import Contest, best_cell, best_score, contest, is_whole, ranked
from bertctl.sweeps.words import count_words, seed_words, setting_words

BEST = "best.yaml"

_FOLDERS = re.compile(r"(?<![\w.~/])(?!//)~?/(?:[^\s:;,'\"()]+/)+")


def conclude(folder: Path, *, test_split: bool = False, listener: Listener = SILENT) -> dict[str, Any]:
    """Read all runs of a sweep and write what they came to: sweep.json, sweep.html, best.yaml, pictures.

    Args:
        folder: SWEEP, with its plan and whatever runs there are.
        test_split: whether to show the chosen run's score on a test split, if that has been computed.
        listener: hears what could not be written.

    Returns:
        The content of sweep.json.

    Raises:
        UnavailableError: no sweep there, or the place can't be written.
        DataError: a damaged plan.
    """
    plan, cells = read_cells(folder)
    found = by_setting(plan, cells)
    document = describe(plan, cells, found, test_split=test_split)
    write_json(folder / "sweep.json", document)
    recipe = _write_best(folder, plan, found, document, listener)
    scores, expected = ([folder / f"{name}{kind}" for kind in (".png", ".svg")] for name in ("scores", "expected"))
    if document["chosen"] is not None:
        draw_scores(document, scores)
        draw_expected(document, expected)
    else:
        for path in (*scores, *expected):  # of an earlier call
            path.unlink(missing_ok=True)
    write_text(folder / "sweep.html", sweep_page(document, recipe=recipe))
    return document


def describe(
    plan: Mapping[str, Any], cells: Sequence[Cell], found: Sequence[SettingScores], *, test_split: bool = False
) -> dict[str, Any]:
    """The document of a sweep.

    Args:
        plan: content of plan.json.
        cells: its runs, as `read_cells` gave them.
        found: the same by setting.
        test_split: see `conclude`.
    """
    order = ranked(plan, found)
    by_choice = ranked(plan, found, by=plan["choose"])
    axes = list(dict.fromkeys(axis for values in plan["settings"] for axis in values))
    values = [value for one in found for value in one.reached]
    higher = plan["primary"]["higher_is_better"]
    recipe = plan["recipe"]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "name": plan["name"],
        "task": recipe["task"],
        "model": Path(recipe["model"]["name"]).name,
        "primary": dict(plan["primary"]),
        "baseline": plan.get("baseline", {}).get(plan["primary"]["name"]),
        "axes": axes,
        "seeds": plan["seeds"],
        "folds": plan.get("folds"),
        "shard": plan.get("shard"),
        "counts": {"runs": len(cells), "scores": len(values), **count_states(cells)},
        "settings": [_setting(plan, one) for one in order],
        "scores": [_score(score) for one in found for score in one.scores],
        "runs": [_run(cell) for cell in cells],
        "chosen": _chosen(plan, by_choice, axes, len(values)),
        "comparison": _comparison(plan, by_choice, axes),
        "expected_best": [vars(one) for one in expected_best(values, higher_is_better=higher)],
        "test": _test(plan, best_cell(plan, found)) if test_split else None,
    }
    document["notes"] = footnotes(document)
    document["performance"] = {
        "seconds": round(sum(cell.seconds for cell in cells), 3),
        "settings": {str(one.index): None if one.seconds is None else round(one.seconds, 3) for one in found},
        "runs": {cell.name: round(cell.seconds, 3) for cell in cells},
    }
    return document


def _setting(plan: Mapping[str, Any], one: SettingScores) -> dict[str, Any]:
    best = best_score(plan, one)
    return {
        "setting": one.index,
        "values": dict(one.values),
        "mean": one.mean,
        "deviation": one.deviation,
        "min": min(one.reached, default=None),
        "max": max(one.reached, default=None),
        "n": len(one.reached),
        "best_seed": None if best is None else best.seed,
        **{state: count for state, count in one.counts.items() if state != "done"},
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "setting": score.setting,
        "seed": score.seed,
        "state": score.state,
        "value": score.value,
        "how": score.how,
        "runs": [cell.name for cell in score.cells],
    }


def _run(cell: Cell) -> dict[str, Any]:
    row = {"run": cell.name, "setting": cell.setting, "seed": cell.seed, "fold": cell.fold}
    # Folders differ from one machine to the next, and are nobody's business in a file that is passed on.
    told = _FOLDERS.sub("", cell.message) if cell.state in ("failed", "diverged", "collapsed") else ""
    return {**row, "state": cell.state, "value": cell.value, "message": told}


def _chosen(
    plan: Mapping[str, Any], order: Sequence[SettingScores], axes: Sequence[str], n: int
) -> dict[str, Any] | None:
    """The chosen setting, its recommended run, and a sentence that says by what it was chosen."""
    first = order[0]
    best = best_score(plan, first)
    if first.mean is None or best is None or best.value is None:
        return None
    metric = f"{plan['primary']['name']} on {plan['primary']['split']}"
    words = setting_words(first.values, axes)
    spread = "" if first.deviation is None else f" ± {figure(first.deviation)}"
    mean = f"{figure(first.mean)}{spread}, mean over {count_words(len(first.reached), 'seed')}"
    if plan["choose"] == "best-run":
        sentence = f"{words}: {metric} {figure(best.value)}, the best of {count_words(n, 'run')}; its setting: {mean}"
    else:
        sentence = f"{words}: {metric} {mean}"
    whole = is_whole(best)
    return {
        "by": plan["choose"],
        "of": n,
        "setting": first.index,
        "values": dict(first.values),
        "mean": first.mean,
        "deviation": first.deviation,
        "n": len(first.reached),
        "run": best.cells[0].name if whole else None,
        "run_value": best.cells[0].value if whole else None,
        "seed": best.seed,
        "fold": best.cells[0].fold,
        "value": best.value,
        "sentence": sentence,
    }


def _comparison(plan: Mapping[str, Any], order: Sequence[SettingScores], axes: Sequence[str]) -> dict[str, Any]:
    """The first setting against the second, or why they are not compared."""
    pair = [one for one in order if one.mean is not None][:2]
    if len(pair) < 2:
        return _not_compared("there is one setting only" if len(order) < 2 else "fewer than two settings have a score")
    first, second = pair
    try:
        found = contest(plan, first, second)
    except BertctlError as error:
        return _not_compared(_FOLDERS.sub("", error.message)) | {"first": first.index, "second": second.index}
    difference = found.difference
    return {
        "first": found.first,
        "second": found.second,
        "seeds": list(found.seeds),
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "n": difference.n,
        "method": difference.method,
        "verdict": found.verdict,
        "sentence": _verdict(plan, found, [setting_words(one.values, axes) for one in pair]),
    }


def _not_compared(why: str) -> dict[str, Any]:
    return {"verdict": "not compared", "sentence": f"the first two settings are not compared: {why}"}


def _verdict(plan: Mapping[str, Any], found: Contest, names: Sequence[str]) -> str:
    difference = found.difference
    digits = f"{difference.value:+.4f}, 95 % {difference.low:+.4f} to {difference.high:+.4f}, p {difference.p:.2g}"
    way = (difference.value > 0) == plan["primary"]["higher_is_better"]
    if found.verdict == "undecided":
        said = f"no real difference between {names[0]} and {names[1]}"
    else:
        said = f"{names[0]} is {'better' if way else 'worse'} than {names[1]}"
    best_run = plan["choose"] == "best-run"
    what = "the best run of each" if best_run else f"the mean over {count_words(len(found.seeds), 'seed')} of each"
    said += f" ({digits}; {difference.method}, {count_words(difference.n, 'example')}, {what})"
    if found.left_out:
        away = count_words(len(found.left_out), "score")
        said += f"; {away} without predictions in both settings {'is' if len(found.left_out) == 1 else 'are'} left out"
    return said


def _test(plan: Mapping[str, Any], cell: Cell | None) -> list[dict[str, Any]]:
    """The chosen run's scores on test splits, as its metrics.json has them."""
    if cell is None:
        return []
    run, name = RunFolder(cell.path), plan["primary"]["name"]
    metrics = run.read(run.metrics)
    return [
        {"run": cell.name, "split": split, "metric": name, **by_name[name]}
        for split, by_name in metrics["metrics"].items()
        if split.startswith("test") and name in by_name
    ]


def _write_best(
    folder: Path,
    plan: Mapping[str, Any],
    found: Sequence[SettingScores],
    document: Mapping[str, Any],
    listener: Listener,
) -> str:
    """Write the recipe of the recommended run, and return it; empty where there is none."""
    cell, chosen = best_cell(plan, found), document["chosen"]
    if cell is None or chosen is None:
        (folder / BEST).unlink(missing_ok=True)  # one of an earlier call would be taken for this one's
        return ""
    try:
        recipe = load_recipe(str(RunFolder(cell.path).recipe))
    except BertctlError as error:
        listener.warn(f"no {BEST}: {error.message}")
        return ""
    head = "".join(f"# {line}\n" for line in _header(plan, cell, document))
    text = head + dump_recipe(recipe, command=f"bertctl finetune {folder / BEST}")
    write_text(folder / BEST, text)
    return text


def _header(plan: Mapping[str, Any], cell: Cell, document: Mapping[str, Any]) -> list[str]:
    chosen, primary = document["chosen"], document["primary"]
    seed = seed_words(plan["seeds"][cell.seed])
    part = "" if cell.fold is None else f", part {cell.fold} of {plan['folds']} held out"
    value = "" if cell.value is None else f"; {primary['name']} on {primary['split']} {figure(cell.value)}"
    by = "the mean over seeds" if chosen["by"] == "mean" else f"the best of {count_words(chosen['of'], 'run')}"
    spread = "" if chosen["deviation"] is None else f" ± {figure(chosen['deviation'])}"
    lines = [
        f"Run {cell.name} of the sweep '{plan['name']}' ({seed}{part}){value}.",
        f"Chosen by {by}: {setting_words(chosen['values'], document['axes'])}.",
        f"Expect of a new seed: {figure(chosen['mean'])}{spread} (mean over {count_words(chosen['n'], 'seed')}).",
    ]
    if cell.fold is not None:
        lines.append("To train on more rows, take out data.folds and data.fold.")
    return lines
