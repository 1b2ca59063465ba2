"""Metric scripts that a person brings, run only when named.

They are local files in the format of the library `evaluate`.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.catalog.hub import is_offline
from bertctl.config.recipe_files import expanded_path
from bertctl.errors import UnavailableError, UsageError
from bertctl.metrics.value import MetricValue

Column = Sequence[Any] | Array


def find_script(script: str) -> Path:
    """Returns the .py file that a path names.

    It is the file itself, or FOLDER/FOLDER.py as the library `evaluate` has it. Nothing is
    imported, so a recipe can be checked with it.

    Raises:
        UsageError: A bare name, which would be a download; or a folder or file that is no metric
            script.
        UnavailableError: A path with nothing there.
    """
    path = expanded_path(script)
    if path.is_dir():
        file = path.resolve() / f"{path.resolve().name}.py"
        if not file.is_file():
            raise UsageError(
                f"{script} is a folder without {file.name}",
                remedy="Name the script itself, a .py file.",
            )
        return file
    if path.is_file():
        if path.suffix != ".py":
            raise UsageError(
                f"{script} is not a Python file", remedy="Name a metric script, a .py file."
            )
        return path.resolve()
    if path.suffix == ".py" or script.startswith((".", "~", "/")):
        raise UnavailableError(
            f"the metric script {script} does not exist", remedy=f"Looked for {path.absolute()}."
        )
    raise UsageError(
        f"'{script}' is not a metric script on this disk, and one from the hub is downloaded code, "
        "which is not run",
        remedy="Built-in metrics are always computed where they apply. For another, save its "
        "script and name the file: ./my_metric.py",
    )


def script_metrics(
    paths: Sequence[str], *, predictions: Column, references: Column, reserved: Collection[str] = ()
) -> dict[str, MetricValue]:
    """Returns the metrics that local `evaluate` scripts compute. This runs their code.

    Args:
        paths: .py files, or folders that hold one of the same name.
        predictions: (N,) answers, in the type that the scripts declare.
        references: (N,) gold.
        reserved: Names of built-in metrics.

    Returns:
        Each number of a script's result as `SCRIPT_KEY`, or `SCRIPT` where the key is the script's
        own name. What is no single number (a list of precisions) is left out. No intervals; higher
        counts as better, as a script does not say.

    Raises:
        UsageError: A name that is no local script (see `find_script`), one that fails, gives no
            finite number, or a name that another metric has.
        UnavailableError: A path with nothing there.
    """
    scripts = [find_script(path) for path in paths]
    metrics: dict[str, MetricValue] = {}
    for script in scripts:
        for key, value in _run(script, predictions, references).items():
            if key == script.stem and key not in reserved:
                name = script.stem
            else:
                name = f"{script.stem}_{key}"
            if name in metrics or name in reserved:
                message = (
                    f"{script}: its result '{key}' would be called {name}, which is another "
                    "metric's name"
                )
                raise UsageError(message, remedy="Rename the script's file.")
            metrics[name] = MetricValue(value, None, None, len(predictions))
    return metrics


def _run(script: Path, predictions: Column, references: Column) -> dict[str, float]:
    """Returns the numbers that a script of the library `evaluate` computes, by their names.

    Raises:
        UsageError: The script fails, or gives no finite number.
    """
    # Importing `evaluate` and a stranger's script may warn about anything; none of it is about this
    # run.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import evaluate

        if is_offline():
            evaluate.config.HF_EVALUATE_OFFLINE = True  # a script may name files to download
        try:
            # In memory: its cache of answers is a file beside the hub's, with a lock, of no use
            # here.
            metric = evaluate.load(str(script), keep_in_memory=True)
            result = metric.compute(predictions=predictions, references=references)
        except Exception as error:
            message = f"the metric script {script} failed: {type(error).__name__}: {error}"
            remedy = (
                "Run it by itself: evaluate.load(PATH).compute(predictions=..., references=...)."
            )
            raise UsageError(message, remedy=remedy) from error
    return _numbers(script, result)


def _numbers(script: Path, result: Any) -> dict[str, float]:
    """Returns the numbers of a script's result: `{"a": 0.5, "b": [1, 2]} -> {"a": 0.5}`.

    Raises:
        UsageError: The result has no numbers by name, or one that is not finite.
    """
    items = result.items() if isinstance(result, Mapping) else ()
    numbers = {str(key): float(value) for key, value in items if isinstance(value, Real)}
    bad = [key for key, value in numbers.items() if not np.isfinite(value)]
    if bad or not numbers:
        if bad:
            problem = f"{', '.join(bad)} is not a finite number"
        else:
            problem = f"no number by name in {result!r:.200}"
        message = f"the metric script {script}: {problem}"
        raise UsageError(
            message, remedy='Let its _compute return a dictionary such as {"my_metric": 0.5}.'
        )
    return numbers
