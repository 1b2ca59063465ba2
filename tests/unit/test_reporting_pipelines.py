"""JUnit, GitHub and GitLab.

The forms they take, their limits, and texts of the data that try to break out.
"""

import json
import re
from xml.etree import ElementTree

import pytest

from bertctl.errors import UnavailableError
from bertctl.reporting import github, gitlab
from bertctl.reporting.escape import markdown, one_line
from bertctl.reporting.findings import Check, counts, worst_first
from bertctl.reporting.junit import junit_document

# What Jenkins and Ant accept alike, written from their documentation: elements, order and
# attributes that we may use.
JUNIT_SCHEMA = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="testsuites">
    <xs:complexType>
      <xs:sequence><xs:element ref="testsuite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
      <xs:attribute name="name" type="xs:string"/>
      <xs:attribute name="time" type="xs:decimal"/>
      <xs:attribute name="tests" type="xs:nonNegativeInteger"/>
      <xs:attribute name="failures" type="xs:nonNegativeInteger"/>
      <xs:attribute name="errors" type="xs:nonNegativeInteger"/>
    </xs:complexType>
  </xs:element>
  <xs:element name="testsuite">
    <xs:complexType>
      <xs:sequence><xs:element ref="testcase" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
      <xs:attribute name="name" type="xs:string" use="required"/>
      <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
      <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
      <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
      <xs:attribute name="skipped" type="xs:nonNegativeInteger"/>
      <xs:attribute name="time" type="xs:decimal"/>
    </xs:complexType>
  </xs:element>
  <xs:element name="testcase">
    <xs:complexType>
      <xs:sequence>
        <xs:choice minOccurs="0">
          <xs:element name="failure" type="outcome"/>
          <xs:element name="error" type="outcome"/>
        </xs:choice>
        <xs:element name="system-out" type="xs:string" minOccurs="0"/>
      </xs:sequence>
      <xs:attribute name="name" type="xs:string" use="required"/>
      <xs:attribute name="classname" type="xs:string" use="required"/>
      <xs:attribute name="time" type="xs:decimal"/>
    </xs:complexType>
  </xs:element>
  <xs:complexType name="outcome">
    <xs:simpleContent>
      <xs:extension base="xs:string">
        <xs:attribute name="message" type="xs:string"/>
        <xs:attribute name="type" type="xs:string" use="required"/>
      </xs:extension>
    </xs:simpleContent>
  </xs:complexType>
</xs:schema>
"""

NASTY = (
    "<script>alert(1)</script> ]]> & \"quoted\" 'too' | a | table\n::error::taken "
    "over\r\n##[group]x\n"
    "[link](http://x) `code` **bold** $x$ 100% \x1b[31mred\x00 \u202eright to left\u2028 \ud800 "
    "\ufffe שלום, ok: yes"
)


def _parsed(document: str) -> ElementTree.Element:
    """Returns the root of an XML document that this package wrote."""
    return ElementTree.fromstring(document.encode())  # noqa: S314  # our own text


def _checks(texts="quite plain"):
    return [
        Check("min accuracy=0.9", "gate", "pass", "kept"),
        Check(f"warned {texts}", "gate", "warning", f"message {texts}", detail=f"detail {texts}"),
        Check("open", "data", "inconclusive", "undecided", file="data/train.csv", line=3),
        Check(
            f"bad {texts}",
            f"data {texts}",
            "fail",
            f"why {texts}",
            f"more {texts}",
            file=f"a,b:c/{texts}",
            line=7,
        ),
    ]


def test_the_worst_come_first_and_are_counted():
    assert [check.verdict for check in worst_first(_checks())] == [
        "fail",
        "inconclusive",
        "warning",
        "pass",
    ]
    assert list(counts(_checks()).items()) == [
        ("fail", 1),
        ("inconclusive", 1),
        ("warning", 1),
        ("pass", 1),
    ]


@pytest.mark.parametrize("texts", ["quite plain", NASTY], ids=["plain", "nasty"])
def test_junit_is_valid_and_says_each_verdict(texts):
    import xmlschema

    document = junit_document(_checks(texts))
    xmlschema.XMLSchema(JUNIT_SCHEMA).validate(document)
    root = _parsed(document)
    assert root.get("tests") == "4"
    assert root.get("failures") == "1"
    assert root.get("errors") == "1"
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == 3
    assert [suite.get("tests") for suite in suites.values()] == ["2", "1", "1"]
    outcomes = {
        case.get("name").split()[0]: [child.tag for child in case] for case in root.iter("testcase")
    }
    assert outcomes == {
        "min": ["system-out"],
        "warned": ["system-out"],
        "open": ["error"],
        "bad": ["failure"],
    }
    assert root.find(".//error").text.startswith("data/train.csv:3\n")
    assert root.find(".//failure").get("type") == "fail"


def test_junit_keeps_the_text_that_xml_can_hold():
    text = _parsed(junit_document(_checks(NASTY))).find(".//failure").text
    assert '<script>alert(1)</script> ]]> & "quoted"' in text
    assert "\\u001b[31mred\\u0000 \\u202eright" in text
    assert "שלום" in text


def _parse_command(line):
    """As the runner reads a workflow command: name, properties, message."""
    match = re.fullmatch(r"::(\w+)(?: ([^:]*))?::(.*)", line, re.DOTALL)
    assert match, line

    def unescaped(text):
        for code, character in (
            ("%2C", ","),
            ("%3A", ":"),
            ("%0D", "\r"),
            ("%0A", "\n"),
            ("%25", "%"),
        ):
            text = text.replace(code, character)
        return text

    properties = dict(part.split("=", 1) for part in match[2].split(",")) if match[2] else {}
    return (
        match[1],
        {key: unescaped(value) for key, value in properties.items()},
        unescaped(match[3]),
    )


def test_annotations_are_one_line_each_and_keep_their_text():
    lines = github.annotations(_checks(NASTY))
    assert all("\n" not in line and "\r" not in line and line.startswith("::") for line in lines)
    parsed = [_parse_command(line) for line in lines]
    assert [kind for kind, _, _ in parsed] == ["error", "warning", "warning"]
    _, properties, message = parsed[0]
    assert set(properties) == {"file", "line", "title"}
    assert properties["line"] == "7"
    assert properties["file"].startswith("a,b:c/<script>")
    assert "100% " in message
    assert "::error::taken over" in message, "within a message it starts nothing"
    assert "##[" not in message
    assert parsed[1][1] == {"file": "data/train.csv", "line": "3", "title": "open"}


def test_at_most_ten_annotations_of_a_kind_the_worst_first():
    many = [Check(f"w{i}", "g", "warning", "m") for i in range(25)] + [
        Check("u", "g", "inconclusive", "m")
    ]
    many += [Check(f"f{i}", "g", "fail", "m") for i in range(10)]
    parsed = [_parse_command(line) for line in github.annotations(many)]
    errors = [p for p in parsed if p[0] == "error"]
    warnings = [p for p in parsed if p[0] == "warning"]
    assert [p[1]["title"] for p in errors] == [f"f{i}" for i in range(10)]
    assert len(warnings) == 10
    assert [p[1]["title"] for p in warnings[:2]] == ["u", "w0"]
    assert warnings[9][2].startswith("17 more")
    assert github.annotations(_checks()[:1]) == []


@pytest.mark.slow
def test_four_thousand_failures_stay_within_every_limit(tmp_path, monkeypatch):
    many = [
        Check(f"check {i}", "data", "fail", NASTY, detail=NASTY, file=NASTY, line=i)
        for i in range(4_000)
    ]
    path = tmp_path / "summary.md"
    path.write_text("x" * 300_000 + "\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    github.write_summary(
        lambda room: github.checks_summary(
            "Checks", many, headline=NASTY, notes=[NASTY], limit=room
        )
    )
    assert github.wants_annotations()
    lines = github.annotations(many)
    assert len(lines) == 10
    assert all(len(line) < 10_000 for line in lines)
    size = path.stat().st_size
    assert 900_000 < size < 1024 * 1024
    text = path.read_text(encoding="utf-8")
    count = text.count("| ❌ |")
    left_out = int(re.search(r"… and ([\d,]+) more", text)[1].replace(",", ""))
    assert count + left_out == 4_000
    assert _parsed(junit_document(many)).get("failures") == "4000"
    issues = gitlab.code_quality(many, default_file="recipe.yaml")
    assert len({issue["fingerprint"] for issue in issues}) == 4_000


def test_a_full_summary_is_left_as_it_is(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    path.write_text("x" * (1024 * 1024 - 20))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    with pytest.raises(UnavailableError, match="full"):
        github.write_summary(lambda room: github.checks_summary("Checks", _checks(), limit=room))
    assert path.stat().st_size == 1024 * 1024 - 20


def test_nothing_is_written_outside_of_github(monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    github.write_summary(lambda room: pytest.fail(f"nobody asks for {room} bytes"))
    assert not github.wants_annotations()


def test_the_summary_is_a_table_whose_rows_no_text_breaks():
    lines = github.checks_summary(
        "Gate", _checks(NASTY), headline="gate: fail", notes=["unpaired"]
    ).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {5}
    text = "\n".join(lines)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\\[link\\](http" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "- unpaired" in lines
    assert "1 fail, 1 inconclusive, 1 warning, 1 pass" in text


def test_tables_that_do_not_fit_are_counted():
    rows = [[str(i), "y" * 300] for i in range(10_000)]
    text = github.tables_summary(
        "Comparison", [("first", ["n", "text"], rows), ("empty", ["a"], [])]
    )
    assert len(text.encode()) < 1024 * 1024
    count = text.count("yyy |")
    assert f"{10_000 - count:,} more rows" in text
    assert "empty" not in text


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("a|b", "a\\|b"),
        ("# no heading", "\\# no heading"),
        ("1. no list", "1\\. no list"),
        ("- no list", "\\- no list"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("two\nlines\ttabbed", "two lines tabbed"),
        (
            "back\\slash `x` *y* _z_ ~~w~~ ![i](u)",
            "back\\\\slash \\`x\\` \\*y\\* \\_z\\_ \\~\\~w\\~\\~ \\!\\[i\\](u)",
        ),
    ],
)
def test_markdown_means_only_itself(text, output):
    assert markdown(text) == output


def test_one_line_starts_no_workflow_command_and_is_cut():
    assert not one_line("  ::stop-commands::x").startswith("::")
    assert "##[" not in one_line("see ##[error]this")
    assert len(one_line("long " * 1000)) == 200
    assert one_line("long " * 1000).endswith("…")


def test_the_metrics_report_is_openmetrics():
    samples = [
        ("accuracy", {"split": 'val"id\\a\ntion'}, 0.91),
        ("entity.f1 x", {"split": "test"}, 0.5),
        ("loss", {"split": "test"}, float("nan")),
    ]
    assert gitlab.metrics_report(samples).splitlines() == [
        'bertctl_accuracy{split="val\\"id\\\\a tion"} 0.91',
        'bertctl_entity_f1_x{split="test"} 0.5',
        "# EOF",
    ]


def test_the_code_quality_report_lists_what_did_not_pass(tmp_path):
    path = tmp_path / "quality.json"
    gitlab.write_code_quality(path, _checks(NASTY), default_file="recipes/mine.yaml")
    issues = json.loads(path.read_text(encoding="utf-8"))
    assert [issue["severity"] for issue in issues] == ["critical", "major", "minor"]
    assert all(
        set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        for issue in issues
    )
    assert issues[1]["location"] == {"path": "data/train.csv", "lines": {"begin": 3}}
    assert issues[2]["location"] == {"path": "recipes/mine.yaml", "lines": {"begin": 1}}
    assert len({issue["fingerprint"] for issue in issues}) == 3


def test_a_finding_keeps_its_fingerprint_when_only_numbers_change():
    def fingerprint(name: str, message: str, file: str) -> str:
        check = Check(name, "gate", "fail", message)
        [issue] = gitlab.code_quality([check], default_file=file)
        return issue["fingerprint"]

    before = fingerprint("min accuracy=0.9", "0.88", "runs/a-1/metrics.json")
    after = fingerprint("min accuracy=0.9", "0.87", "runs/a-2/metrics.json")
    other = fingerprint("min f1=0.9", "0.87", "runs/a-2/metrics.json")

    assert before == after
    assert other != before


def test_paths_are_relative_to_where_the_pipeline_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checks = [
        Check("a", "g", "fail", "m", file=str(tmp_path / "data" / "x.csv")),
        Check("b", "g", "fail", "m", file="./y.csv"),
    ]
    paths = [
        issue["location"]["path"] for issue in gitlab.code_quality(checks, default_file="r.yaml")
    ]
    assert paths == ["data/x.csv", "y.csv"]


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_paths_start_at_the_checkout_in_whatever_folder_of_it_the_job_is(
    tmp_path, monkeypatch, variable
):
    (tmp_path / "checkout" / "models").mkdir(parents=True)
    (tmp_path / "link").symlink_to("checkout")
    monkeypatch.chdir(tmp_path / "checkout" / "models")
    monkeypatch.setenv(variable, str(tmp_path / "link"))
    files = ["x.csv", "../data/x.csv", str(tmp_path / "checkout" / "y.csv"), "/elsewhere/z.csv"]
    checks = [Check(str(i), "g", "fail", "m", file=file, line=1) for i, file in enumerate(files)]
    expected = ["models/x.csv", "data/x.csv", "y.csv", "/elsewhere/z.csv"]
    assert [
        issue["location"]["path"] for issue in gitlab.code_quality(checks, default_file="r.yaml")
    ] == expected
    assert [_parse_command(line)[1]["file"] for line in github.annotations(checks)] == expected
