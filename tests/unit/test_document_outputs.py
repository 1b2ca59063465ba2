"""How the outputs that pages show are compared with what commands print."""

from pathlib import Path

import pytest

from tests.documents.outputs import (
    commands,
    matches,
    run_command,
    run_python,
    screen_text,
    with_new_scores,
)

TABLE = "metric      value\naccuracy   0.9200\nexit code 7\n"


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        (TABLE, TABLE),
        (TABLE, TABLE.replace("0.9200", "0.9133")),
        ("written in 1.2 s, 92 MB\n", "written in 14.0 s, 3.1 GB\n"),
        ("run folder: runs/demo-0a1b2c3d\n", "run folder: runs/demo-99aa88bb\n"),
        ("...\nexit code 7\n", TABLE),
        ("metric ...\nexit code 7\n", TABLE),
        ("a long line that is\nwrapped\n", "a long line\nthat is wrapped\n"),
        ("done\n", "training 70/190 (36 %), 55 s left  loss 0.2230  examples/s 39.5\ndone\n"),
        (
            "compute: cpu (no CUDA), bf16, 2\nthreads, all cores of this process\ndone\n",
            "compute: cuda, 8 threads, all cores of this process\ndone\n",
        ),
    ],
)
def test_what_differs_between_machines_is_no_difference(output, printed):
    assert matches(output, printed)


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        (TABLE, TABLE.replace("7", "8")),
        (TABLE, TABLE.replace("accuracy", "f1")),
        (TABLE, TABLE + "one line more\n"),
        (TABLE, ""),
        ("", "a warning\n"),
        ("...\nexit code 7\n", TABLE.replace("7", "8")),
        ("600 rows\n", "601 rows\n"),
    ],
)
def test_other_words_and_counts_are_a_difference(output, printed):
    assert not matches(output, printed)


def test_numbers_may_vary_where_the_page_marks_it():
    assert matches("layer 3 *\n600 rows\n", "layer 4\n601 rows\n", numbers_vary=True)
    assert not matches("600 rows\n", "600 texts\n", numbers_vary=True)
    assert not matches("fail (exit 7)\n", "fail (exit 8)\n", numbers_vary=True)
    assert not matches("exit code 7\n", "exit code 8\n", numbers_vary=True)


def test_commands_outputs_files_and_marks_of_a_page_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- group: how-to -->\n# Page\n\n<!-- file: rows.csv -->\n```text\na,b\n```\n\n"
        "```console\n$ one \\\n    --two\nfirst\nsecond\n$ three\n```\n\n"
        "<!-- needs: the hub -->\n```sh\nfour\nfive\n```\n",
        encoding="utf-8",
    )

    actual = [(command.text.split(), command.expected, command.mark) for command in commands(page)]

    assert actual == [
        (["a,b"], None, "file: rows.csv"),
        (["one", "--two"], "first\nsecond\n", ""),
        (["three"], "", ""),
        (["four"], None, "needs: the hub"),
        (["five"], None, "needs: the hub"),
    ]


def test_a_command_runs_on_a_terminal_of_100_columns(tmp_path):
    environment = {"PATH": "/usr/bin:/bin"}

    code, output = run_command("stty size < /dev/stderr; pwd; exit 3", tmp_path, environment)

    assert code == 3
    assert output == "60 100\n/home/you\n"


def test_a_bar_that_is_drawn_over_leaves_no_trace():
    assert screen_text("a\r\n\x1b[1mbar 1\r\x1b[2Kbar 2\r\x1b[2Kend\x1b[0m\r\n") == "a\nend\n"


def test_values_in_comments_of_python_are_checked():
    assert run_python("x = 2\nx + 1  # -> 3\n[x]  # -> [2]\n", {}) == 2
    with pytest.raises(AssertionError):
        run_python("1 + 1  # -> 3\n", {})


def test_an_output_that_differs_is_written_anew(tmp_path: Path):
    from tests.documents import outputs

    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n$ echo three\nthree\n```\n", encoding="utf-8")

    assert outputs.write_outputs(page) == 1
    assert page.read_text(encoding="utf-8").count("one") == 2
    assert outputs.write_outputs(page) == 0


def test_old_scores_of_a_page_are_replaced_and_nothing_else() -> None:
    page = """\
...
split       metric       value    95 % interval    n
validation  accuracy *  0.9200  0.8654 to 0.9536  150
...
epoch 1 of 4, step 38: validation accuracy 0.8100 ...
7.5 s: training 4.5 s
"""
    output = """\
epoch 1 of 4, step 38: validation accuracy 0.8100, loss 0.5
split       metric       value    95 % interval    n
validation  accuracy *  0.9067  0.8494 to 0.9436  150
epoch 1 of 4, step 38: validation accuracy 0.8200, loss 0.3949
9.9 s: training 6.1 s
"""

    refreshed = with_new_scores(page, output)

    expected = page.replace("0.9200  0.8654 to 0.9536", "0.9067  0.8494 to 0.9436")
    assert refreshed == expected.replace("0.8100", "0.8200")


def test_a_score_that_the_page_cuts_off_stays_as_short() -> None:
    refreshed = with_new_scores(
        '{"probability": 0.999 ...\n', '{"probability": 0.98765, "id": 1}\n'
    )

    assert refreshed == '{"probability": 0.987 ...\n'


def test_scores_come_from_the_table_that_the_page_shows() -> None:
    page = "...\ntest, by type\nNAME  0.500\n"
    output = "validation, by type\nNAME  0.900\n\ntest, by type\nNAME  0.600\n"

    assert with_new_scores(page, output) == page.replace("0.500", "0.600")


def test_counts_beside_new_scores_are_new_too() -> None:
    assert with_new_scores("NAME  75  0.500\n", "NAME  61  0.600\n") == "NAME  61  0.600\n"


def test_a_heading_stays_above_its_column() -> None:
    page = "check      value\nf1 12 s  0.500\n"
    output = "check    value\nf1 9 s  0.6000\n"

    assert with_new_scores(page, output) == output


def test_a_line_that_a_new_output_lacks_keeps_its_scores() -> None:
    assert with_new_scores("f1 0.5000\n", "recall 0.6000\n") == "f1 0.5000\n"
