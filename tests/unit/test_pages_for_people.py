"""What people read of a run: pages, pictures and last words that are true and whole."""

import io
import re
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_runs import classified, made_run, tagged

from bertctl.reporting.charts import draw_learning_rates
from bertctl.reporting.document import Cell, Report, Tile
from bertctl.reporting.explanations import passages
from bertctl.reporting.html import render_html
from bertctl.reporting.inside_pages import head_records, heads_report
from bertctl.reporting.notebook import NotebookListener, in_notebook
from bertctl.reporting.outcomes import outcome_section
from bertctl.reporting.probe_results import draw_probe
from bertctl.reporting.report import build_report, gather
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.probe_entry import ProbeEntry
from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.sweeps.page import sweep_report
from bertctl.sweeps.pictures import write_pictures
from bertctl.sweeps.setting_text import value_text
from bertctl.tasks.classification.class_answers import ClassAnswers
from bertctl.training.lr_find import suggest
from bertctl.training.undertraining import rising_scores, undertrained_losses
from bertctl.words import human_seconds
from tests.made_sweeps import document_of, made_sweep

LABELS = [f"card_{name}" for name in "abcdefghijklmnopqrstuvwxyz"]


@pytest.mark.parametrize(
    ("seconds", "exact", "brief"),
    [
        (1115, "18 min 35 s", "19 min"),
        (234, "3 min 54 s", "4 min"),
        (3599, "59 min 59 s", "1 h 0 min"),
        (59, "59.0 s", "59.0 s"),
    ],
)
def test_a_brief_duration_is_rounded_not_cut(seconds: float, exact: str, brief: str) -> None:
    assert human_seconds(seconds) == exact
    assert human_seconds(seconds, brief=True) == brief


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3e-4, "3e-04"),
        (5e-5, "5e-05"),
        (2.5e-4, "2.5e-04"),
        (0.01, "0.01"),
        (0.0, "0"),
        (1e-3, "0.001"),
        (16, "16"),
    ],
)
def test_small_numbers_are_written_alike(value: float, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(("low", "high"), [(1e-7, 1.0), (1e-5, 1e-4)])
def test_the_rates_of_a_range_test_are_plain_numbers(
    tmp_path: Path, low: float, high: float
) -> None:
    rates = np.geomspace(low, high, 40).tolist()
    actual = suggest(rates, [2.0 - 0.04 * i for i in range(30)] + [3.0 * i for i in range(10)])
    document = {**actual, "recipe": "r", "model": "m", "steps": 40, "batch_size": 16}
    draw_learning_rates(document, [tmp_path / "rates.svg"])
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "rates.svg").read_text())
    assert not [text for text in texts if "$" in text or "mathdefault" in text]
    assert "1e-05" in texts


def test_the_test_score_leads_once_there_is_one(tmp_path: Path) -> None:
    entry = {"value": 0.76, "low": 0.7, "high": 0.8, "n": 60, "higher_is_better": True}
    metrics = {
        "metrics": {"validation": {"accuracy": entry | {"value": 0.8}}, "test": {"accuracy": entry}}
    }
    tiles = build_report(gather(made_run(tmp_path / "run", classified(60), metrics=metrics))).tiles
    assert [(tile.label, tile.value) for tile in tiles[:2]] == [
        ("accuracy, test", "0.7600"),
        ("accuracy, validation", "0.8000"),
    ]


def test_settings_that_nobody_chose_are_not_listed(tmp_path: Path) -> None:
    """Every run has a device. What the preset `auto` chose is listed, as no recipe has it."""
    recipe = {
        "training": {"batch_size": 32, "epochs": 7},
        "runtime": {"device": "cpu", "threads": 2},
    }
    report = build_report(gather(made_run(tmp_path / "run", classified(60), recipe=recipe)))
    (section,) = (section for section in report.sections if section.name == "recipe")
    names = [str(row[0]) for row in section.blocks[0].rows]
    assert "training.epochs" in names
    assert not {"runtime.device", "runtime.threads"} & {*names}


def test_of_many_labels_the_worst_come_first_and_those_never_predicted_are_marked() -> None:
    lines = classified(400, LABELS)
    for line in lines:
        line["prediction"] = (
            "card_a" if line["prediction"] in ("card_x", "card_m") else line["prediction"]
        )
    section = outcome_section(lines, ClassAnswers.from_lines(lines))
    table = section.blocks[0]
    assert [str(row[0]) for row in table.rows[:2]] == ["card_m", "card_x"]
    assert [row[0].shade > 0 and row[0].wrong for row in table.cells()] == [True, True] + [
        False
    ] * 24
    assert "2 of 26" in table.caption


def test_few_labels_stay_in_the_models_order() -> None:
    lines = classified(100, LABELS[:5])
    table = outcome_section(lines, ClassAnswers.from_lines(lines)).blocks[0]
    assert [str(row[0]) for row in table.rows] == LABELS[:5]


def test_long_names_break_between_their_words_only() -> None:
    page = render_html(Report("t", "", [], []))
    assert "<nav>" not in page, "no menu for nothing"
    from bertctl.reporting.document import Column, Section, TableBlock

    label = "why_is_my_card_declined<b>"
    block = TableBlock(
        [Column("label"), Column("short")],
        [[Cell(label, data=True), Cell("card_a", data=True)]],
        "c",
    )
    page = render_html(Report("t", "", [Tile("a", "1")] * 6, [Section("s", "S", [block])]))
    assert "why_<wbr>is_<wbr>my_<wbr>card_<wbr>declined&lt;b&gt;" in page
    assert ">card_a<" in page
    assert '<p class="caption">c</p>' in page, "a caption does not scroll away with its table"
    assert "--columns: 3" in page


@pytest.mark.parametrize(
    ("seeds", "words"),
    [(1, "one seed each"), pytest.param(3, "mean ± deviation over seeds", marks=pytest.mark.slow)],
)
def test_a_sweeps_caption_says_what_is_there(tmp_path: Path, seeds: int, words: str) -> None:
    settings = []
    for rate in (3e-4, 5e-5):
        settings += [{"optimizer.learning_rate": rate, "training.epochs": n} for n in (1, 2)]
    made = made_sweep(tmp_path, settings, [0.9, 0.8, 0.7, 0.6], seeds=seeds)
    document = SweepDocument.model_validate(document_of(made))
    write_pictures(document, tmp_path)
    page = render_html(sweep_report(document, tmp_path))
    assert words in page
    assert "darker" not in page
    assert "as a dashed line" in page
    far = render_html(sweep_report(document.model_copy(update={"baseline": -5.0}), tmp_path))
    assert "as a dashed line" not in far, "its line is off the scale"


def test_a_probe_of_one_layer_has_a_picture_of_its_size(tmp_path: Path) -> None:
    entry = {"value": 0.8, "low": 0.7, "high": 0.9, "n": 60}
    row = {"layer": "6", "pooling": "mean", "strength": 1.0, "cross_validation": 0.8}
    row["accuracy"] = entry
    metrics = MetricsDocument.model_validate(
        {"primary": {"name": "accuracy", "split": "validation"}, "metrics": {}}
    )
    best = {"layer": "6", "pooling": "mean"}
    for name, table in (("one", [row]), ("two", [row, row | {"layer": "5"}])):
        probe = ProbeEntry.model_validate({"classifier": "c", "best": best, "table": table})
        draw_probe(probe, metrics, [tmp_path / f"{name}.svg"], title="t")
    heights = [
        float(re.search(r'height="([\d.]+)pt"', (tmp_path / f"{name}.svg").read_text())[1])
        for name in ("one", "two")
    ]
    assert heights[0] < 0.5 * heights[1]


def test_heads_are_maps_and_mixed_ones_are_counted() -> None:
    shares = np.array([[0.9, 0.1], [0.2, 0.3]])
    columns = {"pattern": np.where(shares > 0.5, "next", "mixed"), "next": shares}
    patterns = {"texts": 1, "tokens": 9, "cut": 0, "counts": {"next": 8}, "columns": columns}
    report = heads_report("t", "s", head_records(patterns, None), patterns, None)
    first = report.sections[0].blocks[0]
    assert [(str(row[0]), str(row[2])) for row in first.rows] == [("next", "1"), ("mixed", "3")]
    heat_map = report.sections[-1].blocks[0]
    assert [[str(cell) for cell in row] for row in heat_map.rows] == [
        ["1", "0.90", "0.10"],
        ["2", "0.20", "0.30"],
    ]
    assert heat_map.cells()[0][1].shade == 0.9


def explained(comprehensiveness: float, chance: float) -> dict:
    word = {"word": "good", "column": "text", "start": 0, "end": 4, "integrated-gradients": 1.0}
    figures = {
        "integrated-gradients": {"comprehensiveness": comprehensiveness, "sufficiency": 0.0},
        "random": {"comprehensiveness": chance, "sufficiency": 0.0},
    }
    facts = {"steps": 7, "converged": True, "error": 0.006, "change": 1.55}
    target = {
        "label": "pos",
        "value": 1.5,
        "words": [word],
        "methods": {"integrated-gradients": facts},
    }
    line = {
        "id": "7",
        "prediction": "pos",
        "probabilities": {"neg": 0.1, "pos": 0.9},
        "gold": "neg",
    }
    return {**line, "targets": [{**target, "faithfulness": figures}]}


def test_an_explanation_names_probability_and_gold() -> None:
    (passage,) = passages(explained(3.18, 0.57))
    assert passage.title.startswith("7: pos (probability 0.900), gold neg, value +1.50")
    assert "falls by 3.18, without as many random ones by 0.57" in passage.note
    assert "trust" not in passage.note


def test_words_that_do_no_better_than_chance_are_not_to_be_trusted() -> None:
    (passage,) = passages(explained(3.97, 4.12))
    assert passage.note.endswith("do not trust these words")


def history(training: list[float], held_out: list[float]) -> list[dict]:
    steps = range(10, 10 * len(training) + 1, 10)
    lines = [{"step": step, "loss": loss} for step, loss in zip(steps, training, strict=True)]
    every = 10 * len(training) // len(held_out)
    return [
        *lines,
        *({"step": every * (i + 1), "validation_loss": loss} for i, loss in enumerate(held_out)),
    ]


@pytest.mark.parametrize(
    ("training", "held_out", "best", "is_undertrained"),
    [
        ([4.3, 3.5, 3.0, 2.4, 2.0, 1.6], [2.54, 1.9, 1.46], 60, True),
        ([4.3, 3.5, 3.0, 2.4, 1.4, 1.4], [2.54, 1.9, 1.46], 60, True),
        ([4.3, 3.5, 3.0, 2.4, 1.2, 1.2], [2.54, 1.9, 1.46], 60, False),
        ([4.3, 3.5, 3.0, 2.4, 2.0, 1.6], [2.54, 1.9, 1.46], 40, False),
        ([4.3, 3.5, 3.0, 2.4, 2.0, 1.6], [1.9, 1.4, 1.5], 60, False),
        ([0.7, 0.4, 0.2, 0.1, 0.05, 0.02], [0.3, 0.27, 0.19], 60, False),
        ([0.7, 0.7], [0.69], 20, False),
        ([], [0.7, 0.6], 0, False),
    ],
    ids=[
        "still falls",
        "training loss hardly lower",
        "training loss much lower",
        "best was earlier",
        "rises again",
        "learned by heart",
        "one evaluation",
        "nothing logged",
    ],
)
def test_a_training_that_ended_too_early_is_known(
    training: list[float], held_out: list[float], best: int, is_undertrained: bool
) -> None:
    lines = history(training or [0.0] * 2, held_out)
    lines = lines if training else [line for line in lines if "loss" not in line]
    assert (
        bool(undertrained_losses(lines, selection="validation", best_step=best)) == is_undertrained
    )


@pytest.mark.parametrize(
    ("scores", "best", "width", "is_rising"),
    [
        ([0.50, 0.70, 0.76], 30, 0.04, True),
        ([0.85, 0.90, 0.905], 30, 0.04, False),
        ([0.50, 0.70, 0.72], 30, 0.10, False),
        ([0.50, 0.90, 0.93], 30, 0.03, False),
        ([0.50, 0.76, 0.70], 20, 0.04, False),
        ([0.70, 0.76], 20, 0.04, False),
    ],
    ids=[
        "rises",
        "within noise",
        "few rows",
        "has flattened",
        "best was earlier",
        "two evaluations",
    ],
)
def test_scores_that_still_rise_beyond_noise_are_known(
    scores: list[float], best: int, width: float, is_rising: bool
) -> None:
    lines = [{"step": 10 * (i + 1), "validation_f1": score} for i, score in enumerate(scores)]
    about = {"selection": "validation", "metric": "f1", "best_step": best, "interval_width": width}
    mirrored = [{**line, "validation_f1": -line["validation_f1"]} for line in lines]

    assert bool(rising_scores(lines, **about)) == is_rising
    assert bool(rising_scores(mirrored, **about, sign=-1.0)) == is_rising


def test_a_notebook_sees_progress_and_a_script_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    monkeypatch.setitem(
        __import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: object())
    )
    assert in_notebook()
    listener = NotebookListener()
    with redirect_stderr(io.StringIO()) as stderr:
        listener.say("compute: cpu")
        listener.advance("training", 3, 10, {"loss": "0.6931"}, share=0.3)
        listener.say("step 10: validation accuracy 0.9000, loss 0.3000")
        listener.warn("attention")
    text = stderr.getvalue()
    assert "training 3/10 (30 %), loss 0.6931" in text
    assert "compute" not in text
    assert text.endswith(
        "\rstep 10: validation accuracy 0.9000, loss 0.3000\n\rwarning: attention\n"
    )


def test_tagged_runs_have_their_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", tagged(), task="token-classification", primary="entity_f1")
    assert "entity_f1" in render_html(build_report(gather(run)))
