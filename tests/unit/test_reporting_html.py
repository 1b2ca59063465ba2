"""The report of every task, as HTML and as Markdown.

What stands in it, and that a text of the data stays a text.
"""

import json
import re
from html.parser import HTMLParser

import pytest
from made_runs import TASKS, answered, chosen, classified, made_run, scored, several_labels, tagged

from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.reporting.document import (
    Cell,
    Chart,
    Column,
    Listing,
    Note,
    Report,
    Section,
    TableBlock,
    Tile,
)
from bertctl.reporting.html import render_html
from bertctl.reporting.markdown import MOST_BYTES, code_span, render_markdown
from bertctl.reporting.report import build_report, gather

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "end of table": "</td></tr></table><h1>mine</h1>",
    "attribute": "\" onmouseover='alert(3)' x=`",
    "hebrew": "שלום עולם (123)",
    "override": "\u202egnp.exe",
    "controls": "a\x00b\x1b[31mc\x7f",
    "markdown": "[x](javascript:alert(4)) | **bold** `code` @someone #1",
}


class Page(HTMLParser):
    """Tags opened, their attributes, the text of table cells.

    Complains about tags that don't match.
    """

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.cells = []
        self.headings = []
        self._open = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "h2":
            self.headings.append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self._open):
            self.cells[-1] += data
        if "h2" in self._open:
            self.headings[-1] += data


def _html(run, **options):
    return render_html(build_report(gather(run, **options)))


def _table(run, title):
    """Rows of the first table of a section, as plain texts."""
    section = next(
        section for section in build_report(gather(run)).sections if section.title == title
    )
    table = next(block for block in section.blocks if isinstance(block, TableBlock))
    return [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]


QUICK = ("text-classification", "question-answering")


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in QUICK else pytest.mark.slow) for task in TASKS]
)
def test_every_task_has_a_whole_page_that_asks_for_nothing(tmp_path, task):
    lines, primary = TASKS[task]
    text = _html(made_run(tmp_path / "run", lines(), task=task, primary=primary))
    page = Page(text)
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    references = [
        value
        for _, name, value in page.attributes
        if name in ("src", "href", "xlink:href", "action")
    ]
    assert references
    assert all(value.startswith("#") for value in references)
    assert "url(http" not in text
    assert "@import" not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert page.tags.count("svg") >= 4
    expected = {
        "Result",
        "Learning curves",
        "By length",
        "By slice",
        "Data",
        "Recipe",
        "Environment",
    }
    assert expected <= set(page.headings)


def test_sections_fit_the_task(tmp_path):
    fields = {
        "text-classification": {"By label", "Calibration", "Most confident errors"},
        "text-regression": {"Predicted and true scores", "Largest errors"},
        "token-classification": {"By type", "Most confident errors"},
        "question-answering": {"Answerable or not", "Calibration", "Most confident errors"},
        "multiple-choice": {"By place of the right choice", "Calibration", "Most confident errors"},
    }
    every = set.union(*fields.values())
    for task, (lines, primary) in TASKS.items():
        report = build_report(
            gather(made_run(tmp_path / task, lines(), task=task, primary=primary))
        )
        assert {section.title for section in report.sections} & every == fields[task], task


@pytest.mark.parametrize(("shift", "message"), [(0.4, "too high"), (-0.4, "too low")])
def test_probabilities_of_several_labels_are_of_labels_that_are_there(tmp_path, shift, message):
    """That a label is improbable is no doubt."""
    lines = [
        {
            **line,
            "probabilities": {
                name: min(1.0, max(0.0, p + shift)) for name, p in line["probabilities"].items()
            },
        }
        for line in several_labels()
    ]
    report = build_report(gather(made_run(tmp_path / "run", lines)))
    note = (
        next(section for section in report.sections if section.title == "Calibration")
        .blocks[0]
        .text
    )
    path = sum(len(line["gold"]) for line in lines) / (3 * len(lines))
    assert f"share of labels that are there {path:.4f}. The probabilities are {message}" in note


def test_a_cosine_is_not_said_to_be_right_where_it_equals_a_score(tmp_path):
    lines = [{**line, "prediction": line["gold"] / 5} for line in scored()]
    for task, message in {
        "sentence-embeddings": "Gold scores and cosines",
        "text-regression": "On the dotted",
    }.items():
        run = made_run(tmp_path / task, lines, task=task, primary="spearman")
        captions = []
        for section in build_report(gather(run)).sections:
            captions += [block.caption for block in section.blocks if isinstance(block, Chart)]
        assert (
            sum(caption.startswith(("Gold scores", "On the dotted")) for caption in captions) == 1
        )
        assert [caption for caption in captions if caption.startswith(message)], task


def test_the_same_run_gives_the_same_bytes(tmp_path):
    run = made_run(tmp_path / "run", classified())
    assert _html(run) == _html(run)


def test_the_confusion_matrix_counts_every_example(tmp_path):
    labels = ["a", "b", "c"]
    lines = classified(150, labels)
    run = made_run(tmp_path / "run", lines)
    section = next(s for s in build_report(gather(run)).sections if s.title == "By label")
    matrix = section.blocks[1]
    assert [column.name for column in matrix.columns[1:]] == labels
    for row in matrix.rows:
        for column, cell in zip(labels, row[1:], strict=True):
            expected = sum(
                line["gold"] == row[0].text and line["prediction"] == column for line in lines
            )
            assert int(cell.text) == expected
            assert cell.wrong == (row[0].text != column)


def test_many_labels_get_a_list_of_confusions_in_place_of_a_matrix(tmp_path):
    lines = classified(600, [f"label {i}" for i in range(30)])
    section = next(
        s
        for s in build_report(gather(made_run(tmp_path / "run", lines))).sections
        if s.title == "By label"
    )
    confusions = section.blocks[1]
    assert [column.name for column in confusions.columns] == [
        "gold",
        "predicted",
        "times",
        "of gold",
    ]
    times = [int(row[2]) for row in confusions.rows]
    assert times == sorted(times, reverse=True)
    gold = confusions.rows[0][0].text
    predicted = confusions.rows[0][1].text
    assert times[0] == sum(
        line["gold"] == gold and line["prediction"] == predicted for line in lines
    )


def test_label_figures_by_hand(tmp_path):
    lines = [
        {"id": str(i), "text": "t", "gold": gold, "prediction": supplied, "tokens": 3}
        for i, (gold, supplied) in enumerate(
            [("a", "a"), ("a", "a"), ("a", "b"), ("b", "b"), ("b", "a")]
        )
    ]
    rows = _table(made_run(tmp_path / "run", lines), "By label")
    assert rows[0][:5] == ["a", "3", "3", "0.6667", "0.6667"]
    assert rows[1][:5] == ["b", "2", "2", "0.5000", "0.5000"]


def test_several_labels_are_counted_one_by_one(tmp_path):
    lines = several_labels()
    run = made_run(tmp_path / "run", lines, primary="f1")
    rows = _table(run, "By label")
    assert [row[0] for row in rows] == ["joy", "fear", "anger"]
    assert int(rows[0][1]) == sum("joy" in line["gold"] for line in lines)
    assert "Calibration" in Page(_html(run)).headings


def test_entities_and_parts_of_speech(tmp_path):
    by_type = _table(
        made_run(tmp_path / "entities", tagged(60), task="token-classification"), "By type"
    )
    assert [row[0] for row in by_type] == ["LOC", "PER"]
    assert by_type[0][1:5] == ["60", "40", "1.0000", "0.6667"]
    words = [
        {
            "id": "0",
            "words": ["a", "dog"],
            "gold": ["DET", "NOUN"],
            "prediction": ["DET", "VERB"],
            "tokens": 4,
        }
    ]
    by_tag = _table(made_run(tmp_path / "tags", words, task="token-classification"), "By tag")
    assert [row[0] for row in by_tag] == ["DET", "NOUN", "VERB"]
    assert by_tag[1][1:5] == ["1", "0", "–", "0.0000"]


def test_questions_with_and_without_answer(tmp_path):
    rows = _table(
        made_run(tmp_path / "run", answered(90), task="question-answering"), "Answerable or not"
    )
    assert [row[:2] for row in rows] == [
        ["all", "90"],
        ["answerable", "60"],
        ["unanswerable", "30"],
    ]
    # Of 30 unanswerable ones the 15 with an even number were left unanswered.
    assert rows[2][2] == rows[2][4] == "0.5000"
    assert rows[2][5] == "0.5000"


def test_errors_come_surest_first_and_only_errors(tmp_path):
    lines = classified(100)
    rows = _table(made_run(tmp_path / "run", lines), "Most confident errors")
    output = [float(row[-1]) for row in rows]
    assert output == sorted(output, reverse=True)
    assert all(row[2] != row[3] for row in rows)
    worst = max(
        (line for line in lines if line["gold"] != line["prediction"]),
        key=lambda line: line["probabilities"][line["prediction"]],
    )
    assert rows[0][0] == worst["id"]


def test_regression_errors_come_farthest_first_with_their_direction(tmp_path):
    lines = scored(50)
    rows = _table(made_run(tmp_path / "run", lines, task="text-regression"), "Largest errors")
    off = [float(row[-1]) for row in rows]
    assert [abs(value) for value in off] == sorted(map(abs, off), reverse=True)
    assert off[0] == pytest.approx(
        max((line["prediction"] - line["gold"] for line in lines), key=abs), abs=5e-4
    )
    assert rows[0][1] == "\n".join((lines[int(rows[0][0])]["text"], lines[int(rows[0][0])]["pair"]))


def test_choices_are_shown_by_their_texts(tmp_path):
    rows = _table(
        made_run(tmp_path / "run", chosen(), task="multiple-choice"), "Most confident errors"
    )
    assert re.fullmatch(r"[0-3]: ending [0-3] of \d+", rows[0][2])
    assert rows[0][2] != rows[0][3]


def test_no_errors_are_a_sentence(tmp_path):
    lines = [{**line, "prediction": line["gold"]} for line in classified(30)]
    assert "of the 30 answers" in _html(made_run(tmp_path / "run", lines))


@pytest.fixture
def hostile(tmp_path):
    lines = classified(30, ["<i>one</i>", "שתיים"])
    for line, text in zip(lines, HOSTILE.values(), strict=False):
        gold = "<i>one</i>"
        supplied = "שתיים"
        line |= {"text": text, "id": text[:9], "gold": gold, "prediction": supplied, "source": text}
        line["probabilities"] = {gold: 0.0001, supplied: 0.9999}
    return made_run(
        tmp_path / "run", lines, recipe={"name": "made", "description": "<b>&amp; `x</b>"}
    )


def test_a_text_is_data_not_markup(hostile):
    text = _html(hostile)
    page = Page(text)
    assert {"script", "img", "h1", "i", "b"} & set(page.tags) == {"h1"}
    assert page.tags.count("h1") == 1
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    for name in ("script", "end of table", "attribute", "markdown"):
        assert HOSTILE[name] in page.cells
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)


def _hostile_everywhere(text):
    """A report with this text in every place that holds one."""
    cells = [
        Cell(text, data=data, strong=strong, code=code)
        for data in (0, 1)
        for strong in (0, 1)
        for code in (0, 1)
    ]
    table = TableBlock(
        [Column(text, data=bool(i % 2)) for i in range(8)], [cells, [text] * 8], caption=text
    )
    chart = Chart(lambda: "<svg></svg>", text, wide=True)
    sections = [
        Section(
            text, text, [Note(text), Note(f"{text} `{text}`"), chart, table, Listing(text, text)]
        )
    ]
    return Report(text, text, [Tile(text, text, text)], sections)


HALF = "half a pair \ud800"
"""No run can hold it: a prediction with such a text is refused where it is read."""


@pytest.mark.parametrize(
    "text", [*HOSTILE.values(), HALF, '"onload=alert(5) x="', "{{ 7 * 7 }}", "</title></style><b>"]
)
def test_no_place_of_a_page_takes_a_text_for_markup(text):
    texts = [render_html(_hostile_everywhere(entry)) for entry in (text, "harmless")]
    texts[0].encode("utf-8")  # half of a surrogate pair would fail here
    page, harmless = map(Page, texts)
    assert set(page.tags) == set(harmless.tags)
    assert {(tag, name) for tag, name, _ in page.attributes} == {
        (tag, name) for tag, name, _ in harmless.attributes
    }
    assert "49" not in "".join(page.cells)


def test_the_direction_of_a_text_ends_where_the_text_ends(hostile):
    text = _html(hostile)
    assert f'<bdi dir="auto">{HOSTILE["hebrew"]}</bdi>' in text
    assert f'<bdi dir="auto">{HOSTILE["override"]}</bdi>' in text
    assert '<th scope="col" class="number"><bdi dir="auto">שתיים</bdi></th>' in text
    outside = re.sub(r"<bdi.*?</bdi>", "", text)
    assert "\u202e" not in outside
    assert "שלום" not in outside


def test_lines_of_a_text_have_their_own_directions():
    table = TableBlock([Column("text")], [[Cell("one\nשתיים", data=True)]])
    text = render_html(Report("t", "", [], [Section("s", "S", [table])]))
    assert '<bdi dir="auto">one</bdi>\n<bdi dir="auto">שתיים</bdi>' in text


def test_long_texts_are_cut_and_counted(tmp_path):
    lines = classified(40)
    wrong = next(line for line in lines if line["gold"] != line["prediction"])
    wrong["text"] = "x" * 5000
    assert f"{'x' * 600} … (4400 characters more)" in _html(made_run(tmp_path / "run", lines))


def test_a_run_without_texts_says_so(tmp_path):
    lines = [
        {name: value for name, value in line.items() if name != "text"} for line in classified(60)
    ]
    assert "made without texts" in _html(made_run(tmp_path / "run", lines))


def test_slices_have_their_own_scores(tmp_path):
    lines = classified(100)
    rows = _table(made_run(tmp_path / "run", lines), "By slice")
    right = sum(line["gold"] == line["prediction"] for line in lines if line["source"] == "a")
    assert rows[0][:3] == ["a", "50", f"{right / 50:.4f}"]


def test_rare_slice_values_are_put_together(tmp_path):
    lines = [{**line, "source": f"source {i % 37}"} for i, line in enumerate(classified(200))]
    rows = _table(made_run(tmp_path / "run", lines), "By slice")
    assert len(rows) == 21
    assert rows[-1][0] == "17 other values"
    assert sum(int(row[1]) for row in rows) == 200


def test_length_bins_hold_every_example_once(tmp_path):
    sections = build_report(gather(made_run(tmp_path / "run", classified(123)))).sections
    table = next(s for s in sections if s.title == "By length").blocks[1]
    assert sum(int(row[1]) for row in table.rows) == 123


def test_what_a_folder_lacks_is_left_out(tmp_path):
    run = made_run(tmp_path / "run", classified(), split="file")
    for name in ("environment.json", "performance.json", "history.jsonl"):
        (run / name).unlink()
    headings = Page(_html(run)).headings
    assert "Result" in headings
    assert not {"Learning curves", "Environment"} & set(headings)


def test_layers_of_a_probe(tmp_path):
    def entry(value):
        return {
            "value": value,
            "low": value - 0.1,
            "high": value + 0.1,
            "n": 9,
            "higher_is_better": True,
        }

    rows = [
        {
            "layer": str(i),
            "pooling": "mean",
            "strength": 0.1,
            "cross_validation": 0.5 + i / 10,
            "accuracy": entry(0.6 + i / 10),
        }
        for i in range(3)
    ]
    probe = {"classifier": "ridge", "best": {"layer": "2", "pooling": "mean"}, "table": rows}
    run = made_run(tmp_path / "run", classified(), metrics={"probe": probe})
    section = next(s for s in build_report(gather(run)).sections if s.title == "Layers")
    assert section.blocks[1].rows[2][0] == Cell("2", strong=True)


def test_what_was_fitted_is_told_and_no_second_temperature_is_recommended(tmp_path):
    run = made_run(tmp_path / "run", classified())
    assert "evaluate RUN --calibrate" in _html(run)
    decision = {"schema": 1, "temperature": 1.6, "threshold": 0.3, "positive": "positive"}
    (run / "decision.json").write_text(
        json.dumps({**decision, "fitted_on": "validation", "n": 200})
    )
    text = _html(run)
    assert "temperature of 1.6" in text
    assert "evaluate RUN --calibrate" not in text


def test_another_split_and_one_that_was_not_scored(tmp_path):
    run = made_run(tmp_path / "run", classified(50), split="test")
    assert gather(run, split="test").shown == "test"
    with pytest.raises(UsageError, match="split 'train'"):
        gather(run, split="train")


def test_a_folder_of_runs_metrics_alone_and_damage_are_refused(tmp_path):
    run = made_run(tmp_path / "all" / "one", classified(20))
    made_run(tmp_path / "all" / "two", classified(20))
    with pytest.raises(UsageError, match="holds 2 runs"):
        gather(tmp_path / "all")
    with pytest.raises(UsageError, match="metrics only"):
        gather(run / "metrics.json")
    with pytest.raises(UnavailableError, match="does not exist"):
        gather(tmp_path / "none")
    (run / "predictions" / "validation.jsonl").write_text(
        '{"id": "0", "gold": "a", "prediction": "a"}\n{"id": \n'
    )
    with pytest.raises(DataError, match=r"validation\.jsonl:2"):
        gather(run)


@pytest.mark.parametrize("task", TASKS)
def test_markdown_has_the_tables_and_no_markup_of_the_data(tmp_path, task):
    lines, primary = TASKS[task]
    run = made_run(tmp_path / "run", lines(), task=task, primary=primary)
    text = render_markdown(build_report(gather(run)))
    assert text.startswith("## made\n")
    assert "### Result" in text
    assert "| --- |" in text
    assert "<svg" not in text
    widths = {
        line.count("|") - line.count("\\|")
        for line in text.splitlines()
        if line.startswith("| split")
    }
    assert len(widths) == 2  # the result's table and the data's


def test_markdown_keeps_hostile_texts_in_code(hostile):
    text = render_markdown(build_report(gather(hostile)))
    bare = re.sub(r"(`+).*?\1", "", text)
    for part in ("<script", "<img", "onmouseover", "javascript:", "@someone", "#1", "שלום"):
        assert part not in bare
        assert part in text


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`x`", "`` `x` ``"),
        ("a|b", r"`a\|b`"),
        ("two\nlines", "`two lines`"),
        ("", ""),
    ],
)
def test_code_spans_hold_any_text(text, span):
    assert code_span(text) == span


def test_markdown_fits_a_comment():
    table = TableBlock([Column("text")], [[Cell("x" * 190, data=True)] for _ in range(1000)])
    sections = [Section(f"s{i}", f"Section {i}", [Note("first"), table]) for i in range(3)]
    text = render_markdown(Report("t", "", [], [Section("a", "Small", [Note("kept")]), *sections]))
    assert len(text.encode()) < MOST_BYTES + 200
    assert "kept" in text
    assert text.endswith("The rest does not fit here.\n")


def test_long_slice_values_that_end_otherwise_stay_apart(tmp_path):
    place = "https://example.org/a/very/long/path/that/goes/on/and/on/and/on/"
    lines = [{**line, "source": f"{place}{i % 2}"} for i, line in enumerate(classified(100))]
    rows = _table(made_run(tmp_path / "run", lines), "By slice")
    assert [row[1] for row in rows] == ["50", "50"]
    assert all(place[:40] in row[0] and "more)" in row[0] for row in rows)


def test_the_brier_score_of_several_labels_is_a_mean_over_labels_whatever_the_rows(tmp_path):
    unsure = {"joy": 0.5, "fear": 0.5, "anger": 0.5}
    lines = [{**line, "gold": ["joy"], "probabilities": unsure} for line in several_labels()]
    assert "Brier score 0.2500" in _html(made_run(tmp_path / "run", lines, primary="f1"))


def test_what_is_read_in_windows_is_not_called_cut(tmp_path):
    for task, lines, how in (
        ("token-classification", tagged(60), "read in windows"),
        (None, classified(60), "cut"),
    ):
        run = made_run(tmp_path / how[:3], lines, **({"task": task} if task else {}))
        metrics = json.loads((run / "metrics.json").read_text())
        counts = {
            "examples": 60,
            "truncated": 0,
            "lost_tokens": 0,
            "unknown_tokens": 0,
            "tokens": 600,
        }
        (run / "metrics.json").write_text(json.dumps(metrics | {"data": {"validation": counts}}))
        assert f"tokens is {how}." in _html(run)
