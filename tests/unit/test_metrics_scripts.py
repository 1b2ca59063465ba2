"""Metric scripts of a person's own: run where named, refused where they would be downloads."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from bertctl.errors import UnavailableError, UsageError
from bertctl.metrics.scripts import find_script, script_metrics


def _write_script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = """\
        import warnings

        import datasets
        import evaluate

        warnings.warn("a script may warn", UserWarning)


        class OwnMetric(evaluate.Metric):
            def _info(self):
                number = datasets.Value("int64")
                features = datasets.Features({"predictions": number, "references": number})
                return evaluate.MetricInfo(
                    description="", citation="", inputs_description="", features=features
                )

            def _compute(self, predictions, references):
    """
    path.write_text(dedent(head) + "        " + body + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _evaluate_offline_again(monkeypatch):
    import evaluate

    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", False)


def test_a_local_script_is_run_on_the_answers(tmp_path):
    script = _write_script(
        tmp_path / "near_hits.py",
        'return {"near_hits": 0.5, "off_by": sum(abs(p - r) for p, r in zip(predictions, '
        'references)), "raw": [1]}',
    )
    metrics = script_metrics([str(script)], predictions=[1, 2, 5], references=[1, 3, 3])
    assert {name: metric.value for name, metric in metrics.items()} == {
        "near_hits": 0.5,
        "near_hits_off_by": 3.0,
    }
    assert all(
        (metric.low, metric.high, metric.n) == (None, None, 3) for metric in metrics.values()
    )


def test_offline_reaches_what_a_script_may_download(tmp_path, monkeypatch):
    import evaluate

    script = str(_write_script(tmp_path / "own.py", 'return {"x": 1.0}'))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    script_metrics([script], predictions=[1], references=[1])
    assert not evaluate.config.HF_EVALUATE_OFFLINE
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    script_metrics([script], predictions=[1], references=[1])
    assert evaluate.config.HF_EVALUATE_OFFLINE


def test_a_folder_with_a_script_of_its_name_is_run_and_a_relative_path_too(tmp_path, monkeypatch):
    _write_script(tmp_path / "own" / "own.py", 'return {"f1": 0.25}')
    monkeypatch.chdir(tmp_path)
    assert set(script_metrics(["own"], predictions=[1], references=[1], reserved=["f1"])) == {
        "own_f1"
    }
    assert set(script_metrics(["./own/own.py"], predictions=[1], references=[1])) == {"own_f1"}


@pytest.mark.parametrize("name", ["accuracy", "seqeval", "some-one/some-metric"])
def test_a_name_from_the_hub_is_refused(name):
    with pytest.raises(UsageError, match="downloaded code"):
        script_metrics([name], predictions=[1], references=[1])


def test_a_file_that_is_not_there_and_one_that_is_no_script(tmp_path):
    with pytest.raises(UnavailableError, match="does not exist"):
        find_script(str(tmp_path / "gone.py"))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="not a Python file"):
        find_script(str(tmp_path / "notes.txt"))
    with pytest.raises(UsageError, match="folder without"):
        find_script(str(tmp_path))


@pytest.mark.parametrize(
    ("stem", "body", "message"),
    [
        ("broken", 'raise KeyError("colour")', "KeyError: 'colour'"),
        ("not_finite", 'return {"x": float("nan")}', "x is not a finite number"),
        ("no_number", 'return {"x": [1.0]}', "no number by name"),
        ("exact", 'return {"y": 1.0, "y ": 1.0}', None),
        ("f1", 'return {"macro": 1.0}', "another metric's name"),
    ],
)
def test_scripts_that_fail_or_answer_nothing_are_the_persons_to_mend(tmp_path, stem, body, message):
    script = str(_write_script(tmp_path / f"{stem}.py", body))
    if message is None:
        assert set(script_metrics([script], predictions=[1], references=[1])) == {
            "exact_y",
            "exact_y ",
        }
        return
    with pytest.raises(UsageError) as caught:
        script_metrics(
            [script],
            predictions=[1],
            references=[1],
            reserved=["f1_macro"],
        )
    assert message in caught.value.message
    assert script in caught.value.message


def test_two_scripts_of_one_name_do_not_hide_each_other(tmp_path):
    scripts = [_write_script(tmp_path / folder / "own.py", 'return {"x": 1.0}') for folder in "ab"]
    with pytest.raises(UsageError, match="own_x"):
        script_metrics([str(script) for script in scripts], predictions=[1], references=[1])


def test_nothing_heavy_is_imported_before_a_script_is_named():
    code = (
        "import sys, numpy as np\n"
        "from bertctl.metrics.classification import matthews\n"
        "from bertctl.metrics.regression import spearman\n"
        "from bertctl.metrics.scripts import script_metrics\n"
        "labels = np.array([0, 1, 1])\n"
        "matthews(labels, labels[::-1], n_labels=2).metric(resamples=100)\n"
        "spearman(np.arange(5.), np.arange(5.) ** 2).metric(resamples=100)\n"
        "script_metrics([], predictions=[], references=[])\n"
        "heavy = {'torch', 'transformers', 'evaluate', 'datasets', 'scipy.stats', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
