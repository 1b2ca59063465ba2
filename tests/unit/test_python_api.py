"""The Python API, used as a person would: only names of `bertctl` itself."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertctl
from bertctl.errors import DataError, UnavailableError, UsageError
from tests.conftest import TinyRun
from tests.documents.outputs import prepare, run_python


def fields(tiny_model: Path, data: Path) -> dict[str, object]:
    return {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "training.preset": None,
        "training.epochs": 20,
        "training.batch_size": 8,
        "optimizer.learning_rate": 5e-3,
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }


def test_a_model_is_trained_opened_scored_and_asked(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    from bertctl import Recipe, evaluate, finetune, load_recipe, load_run, predict

    recipe = load_recipe("text-classification", fields(tiny_model, opinions))
    assert isinstance(recipe, Recipe)
    run = finetune(recipe, output=tmp_path / "run")
    assert run.path == tmp_path / "run"
    assert run.recipe.model_dump()["training"] == recipe.model_dump()["training"]
    assert run.metrics["validation"]["accuracy"] == 1.0
    assert (run.model_path / "README.md").exists(), "the model card"

    again = load_run(tmp_path / "run")
    assert again.metrics == run.metrics
    assert evaluate(again)["validation"]["accuracy"] == 1.0
    assert again.evaluate_file(opinions, tmp_path / "scored")["file"]["accuracy"] == 1.0

    pd = pytest.importorskip("pandas")  # comes with datasets
    table = pd.DataFrame({"text": ["good food", "dull"]}, index=[5, 7])
    answers = predict(again, ["the film was good\nand very fine", "it was bad food"])
    assert [answer["prediction"] for answer in answers] == ["pos", "neg"]
    assert predict(tmp_path / "run", [{"text": "it was bad food"}])[0]["probabilities"].keys() == {
        "neg",
        "pos",
    }
    assert predict(again, []) == []
    for examples in (
        "a text",
        ["a", None],
        [{"text": "a"}, "b"],
        [1.0],
        {"text": "a"},
        None,
    ):
        with pytest.raises(UsageError, match="a list of texts, or a list of mappings"):
            predict(again, examples)
    assert predict(again, table) == predict(again, table["text"]), "a table, whatever its index"
    texts = [answer["text"] for answer in predict(again, table["text"])]
    assert texts == ["good food", "dull"], "a column, whatever its index"
    assert (
        predict(again, np.array(texts))
        == predict(again, (text for text in texts))
        == predict(again, texts)
    )
    assert (
        predict(again, [{"text": np.array(["dull"])[0], "stars": np.int64(1)}])[0]["text"] == "dull"
    )
    with pytest.raises(UsageError, match="of type Timestamp"):
        predict(again, [{"text": "dull", "day": pd.Timestamp("2020-01-01")}])


def test_another_thread_trains_the_same_model(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    short = {**fields(tiny_model, opinions), "training.epochs": 1}
    here = bertctl.finetune("text-classification", short, output=tmp_path / "here")
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(
            bertctl.finetune, "text-classification", short, output=tmp_path / "there"
        ).result()
    assert others.metrics == here.metrics


def test_threads_that_train_at_once_train_what_each_would_alone(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    short = {**fields(tiny_model, opinions), "training.epochs": 1}
    positions = [tmp_path / str(number) for number in range(6)]
    with ThreadPoolExecutor(len(positions)) as pool:
        runs = list(
            pool.map(
                lambda place: bertctl.finetune("text-classification", short, output=place),
                positions,
            )
        )
    assert all(run.metrics == runs[0].metrics for run in runs)
    assert (
        runs[0].metrics
        == bertctl.finetune("text-classification", short, output=tmp_path / "alone").metrics
    )


def test_training_leaves_the_callers_random_numbers_alone(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """Or a search that draws its settings between two runs draws the same ones each time."""
    import random

    import torch

    short = {**fields(tiny_model, opinions), "training.epochs": 1}
    drawn = []
    for number in range(2):
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        if number:
            bertctl.finetune("text-classification", short, output=tmp_path / "run")
        drawn.append((random.random(), np.random.random(), torch.rand(1).item()))  # noqa: S311
    assert drawn[0] == drawn[1]


def test_a_finished_run_is_not_trained_again(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    short = {**fields(tiny_model, opinions), "training.epochs": 1}
    first = bertctl.finetune("text-classification", short, output=tmp_path / "run")
    written = (first.path / "metrics.json").stat().st_mtime_ns
    with pytest.raises(UsageError, match="not empty"):
        bertctl.finetune("text-classification", short, output=tmp_path / "run")
    again = bertctl.finetune("text-classification", short, output=tmp_path / "run", resume="if any")
    assert again.metrics == first.metrics
    assert (again.path / "metrics.json").stat().st_mtime_ns == written


def test_features_are_those_of_the_encoder(tiny_model: Path) -> None:
    """The premise: texts of different lengths, so that some are padded."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = ["good", "the film was very very good", "it was bad"]
    options = {"runtime.device": "cpu", "runtime.precision": "fp32", "model.max_length": 40}
    vectors = bertctl.extract_features(
        texts, tiny_model, layers="-1,-2", pooling="cls", fields=options
    )
    model = AutoModel.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    with torch.inference_mode():
        for text, vector in zip(texts, vectors, strict=True):
            states = model(
                **tokenizer(text, return_tensors="pt"), output_hidden_states=True
            ).hidden_states
            expected = torch.cat([states[-1][0, 0], states[-2][0, 0]])
            np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean training\.epochs"):
        bertctl.load_recipe("sst2", {"training.epoch": 3})
    with pytest.raises(UnavailableError):
        bertctl.load_run(tmp_path)
    for texts in ("a text", ["a", None], [1.0], {"text": "a"}, None):
        with pytest.raises(UsageError, match="a list of texts"):
            bertctl.extract_features(texts, "minilm")
    with pytest.raises(AttributeError, match="train"):
        bertctl.train  # noqa: B018


def test_half_a_character_is_refused(tiny_run: TinyRun, tiny_model: Path) -> None:
    half = "good \ud800"
    with pytest.raises(UsageError, match="half a surrogate pair"):
        bertctl.predict(tiny_run.path, [half])
    with pytest.raises(DataError, match="half of a surrogate pair"):
        bertctl.predict(tiny_run.path, [{"text": half}])
    with pytest.raises(UsageError, match="half a surrogate pair"):
        bertctl.extract_features([half], tiny_model, fields={"model.max_length": 40})


def test_what_a_run_was_trained_with_stays(tiny_run: TinyRun) -> None:
    assert bertctl.load_run(tiny_run.path, {"model.max_length": 8}).recipe.model.max_length == 8
    for name, value in {
        "model.long_text": "window",
        "training.epochs": 9,
        "model.name": "minilm",
    }.items():
        with pytest.raises(UsageError, match=f"was trained with its own {name}"):
            bertctl.load_run(tiny_run.path, {name: value})


def test_values_of_fields_may_be_none_and_of_numpy() -> None:
    assert bertctl.load_recipe("mrpc-small").training.preset == "small-data"
    assert bertctl.load_recipe("mrpc-small", {"training.preset": None}).training.preset is None
    of_numpy = {"training.batch_size": np.int64(8), "optimizer.learning_rate": np.float32(0.5)}
    recipe = bertctl.load_recipe("sst2", of_numpy)
    assert recipe.training.batch_size == 8
    assert recipe.optimizer.learning_rate == 0.5


def test_the_import_costs_nothing_until_a_name_is_used() -> None:
    check = (
        "import sys, bertctl; assert not {'torch', 'numpy', 'pydantic', 'typer'} & "
        "set(sys.modules); bertctl.Recipe"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
    assert set(bertctl.__all__) <= set(dir(bertctl))
    assert all(hasattr(bertctl, name) for name in bertctl.__all__)


@pytest.mark.parametrize(
    "page", ["README.md", pytest.param("bertctl/docs/python.md", marks=pytest.mark.slow)]
)
def test_what_the_documents_show_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python of a page, in order, on fewer rows."""
    text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    fewer = (
        '"training.epochs": 1, "data.max_train_rows": 32, "data.max_eval_rows": 16, '
        '"training.checkpoint_every": "off"'
    )
    assert code.count('"training.epochs": 1') == 1
    monkeypatch.chdir(tmp_path)
    prepare(Path(page), tmp_path)
    names: dict[str, Any] = {}
    if page == "README.md":  # so few rows may teach nothing
        code = re.sub(r"  # -> .*", "", code)
    completed = run_python(code.replace('"training.epochs": 1', fewer), names)
    assert isinstance(names["run"], bertctl.Run)
    if page != "README.md":
        assert completed > 5
        assert names["vectors"].shape == (2, 768)
