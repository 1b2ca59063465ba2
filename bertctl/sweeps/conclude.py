"""Writes the result of a sweep: sweep.json, sweep.html, best.yaml and pictures."""

from collections.abc import Iterator
from pathlib import Path

from bertctl.config.dump import dump_recipe
from bertctl.config.load import load_recipe
from bertctl.errors import BertctlError
from bertctl.progress import SILENT, Listener
from bertctl.reporting.html import render_html
from bertctl.reporting.summary import figure
from bertctl.run_documents.sweep_document import ChosenSetting, SweepDocument
from bertctl.run_folder import RunFolder, hold
from bertctl.sweeps.describe import describe
from bertctl.sweeps.page import chosen_by, sweep_report
from bertctl.sweeps.pictures import write_pictures
from bertctl.sweeps.plan import CELLS, SweepPlan
from bertctl.sweeps.results import read_cells
from bertctl.sweeps.setting_text import seed_text, setting_text
from bertctl.words import count
from bertctl.writing import write_json, write_text

BEST = "best.yaml"


def conclude(
    folder: Path, *, test_split: bool = False, listener: Listener = SILENT
) -> SweepDocument:
    """Reads all runs of a sweep and writes sweep.json, sweep.html, best.yaml and pictures.

    Args:
        folder: SWEEP, with its plan and whatever runs there are.
        test_split: whether to show the chosen run's score on a test split, if that has been
            computed.
        listener: Receives a warning if there is no best.yaml.

    Returns:
        The content of sweep.json.

    Raises:
        UnavailableError: no sweep there, or the place can't be written.
        DataError: a damaged plan.
    """
    # Commands for several shards may end at the same time in one folder. With the lock, the command
    # that reads the runs last also writes the result last.
    with hold(folder / ".lock-result", patient=True):
        plan, cells = read_cells(folder)
        document = describe(plan, cells, test_split=test_split)
        write_json(folder / "sweep.json", document.as_json())
        recipe = _write_best(folder, plan, document, listener)
        write_pictures(document, folder)
        write_text(
            folder / "sweep.html", render_html(sweep_report(document, folder, recipe=recipe))
        )
    return document


def _write_best(folder: Path, plan: SweepPlan, document: SweepDocument, listener: Listener) -> str:
    """Writes the recipe of the recommended run as best.yaml, and returns the text of the file.

    The text is empty if there is no such run, or if its recipe can't be read, which is a warning.
    """
    chosen = document.chosen
    if chosen is None or chosen.run is None:
        # A best.yaml of an earlier call would look like the result of this one.
        (folder / BEST).unlink(missing_ok=True)
        return ""
    try:
        recipe = load_recipe(str(RunFolder(folder / CELLS / chosen.run).recipe))
    except BertctlError as error:
        listener.warn(f"no {BEST}: {error.message}")
        return ""
    head = "".join(f"# {line}\n" for line in _header(plan, chosen))
    text = head + dump_recipe(recipe, command=f"bertctl finetune {folder / BEST}")
    write_text(folder / BEST, text)
    return text


def _header(plan: SweepPlan, chosen: ChosenSetting) -> Iterator[str]:
    """Yields the lines of the comment in best.yaml: run, seed, choice, and scores to expect."""
    if chosen.fold is None:
        held_out = ""
    else:
        held_out = f", fold {chosen.fold} of {plan.folds} held out"
    if chosen.run_value is None:
        value = ""
    else:
        value = f"; {plan.primary} {figure(chosen.run_value)}"
    seed = seed_text(plan.seeds[chosen.seed])
    yield f"Run {chosen.run} of the sweep '{plan.name}' ({seed}{held_out}){value}."
    yield f"Chosen by {chosen_by(chosen)}: {setting_text(chosen.values, plan.axes)}."
    if chosen.deviation is None:
        spread = ""
    else:
        spread = f" ± {figure(chosen.deviation)}"
    measured = (
        f"{figure(chosen.mean)}{spread} (mean over {count(chosen.n, 'seed')}, on the split "
        "that chose)"
    )
    if chosen.expected is None:
        yield f"Expect of a new seed at most {measured}."
    else:
        expected = figure(chosen.expected)
        yield f"Expect of a new seed: {expected}, corrected for the choice; measured {measured}."
        yield f"Expect of this run on new examples: {figure(chosen.run_expected)}."
    if chosen.fold is not None:
        yield "To train on more rows, take out data.folds and data.fold."
