"""The pages of documentation that ship with the package: their groups, their order, their words.

A page says itself where it belongs, in the comment that is its first line:

    <!-- group: how-to; order: 30; verbs: gate, compare -->

`group` is one of `GROUPS`, `order` is its position among the pages of the group, and the help of
each verb in `verbs` ends with the name of the page. A new page needs no entry anywhere else.
Nothing here needs rich.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs"

GROUPS = {
    "tutorial": "Tutorial: learn by doing",
    "how-to": "How-to guides: reach a goal",
    "reference": "Reference: look something up",
    "explanation": "Explanation: understand how and why",
}
"""Groups of pages in the order in which they are listed, with their headings."""

OVERVIEW = "README"
"""File of the folder that is a table of the pages for readers of the source, and no page itself."""

_FRONT_MATTER = re.compile(r"<!-- (group:.*?) -->\n")
_COMMENT_LINES = re.compile(r"<!--.*?-->\n")


@dataclass(frozen=True)
class DocPage:
    """A page of documentation.

    Attributes:
        name: What is typed after `bertctl docs`.
        title: The first heading.
        summary: The first sentence under the title: what the page is for.
        group: One of `GROUPS`.
        order: Position within the group.
        verbs: Verbs whose help ends with the name of this page.
        text: Markdown without the comments.
    """

    name: str
    title: str
    summary: str
    group: str
    order: int
    verbs: tuple[str, ...]
    text: str


def load_pages() -> dict[str, DocPage]:
    """Reads all pages, in the order in which they are listed, by name."""
    paths = [path for path in FOLDER.glob("*.md") if path.stem != OVERVIEW]
    pages = [_read_page(path) for path in paths]
    groups = list(GROUPS)
    pages.sort(key=lambda page: (groups.index(page.group), page.order, page.name))
    return {page.name: page for page in pages}


def pages_of_verb(verb: str) -> list[str]:
    """Returns the names of the pages that the help of a verb ends with."""
    return [page.name for page in load_pages().values() if verb in page.verbs]


def _read_page(path: Path) -> DocPage:
    """Returns the page that a Markdown file holds.

    Its first line is `<!-- group: ...; order: ... -->`, maybe with `verbs: ...`.
    """
    source = path.read_text(encoding="utf-8")
    front_matter = _FRONT_MATTER.match(source)
    if front_matter is None:
        raise ValueError(f"{path} does not begin with <!-- group: ...; order: ... -->")
    entries = dict(entry.split(": ", 1) for entry in front_matter[1].split("; "))
    text = _COMMENT_LINES.sub("", source)
    title, _, body = text.partition("\n")
    return DocPage(
        name=path.stem,
        title=title.removeprefix("# "),
        summary=_first_sentence(body),
        group=entries["group"],
        order=int(entries["order"]),
        verbs=tuple(entries["verbs"].split(", ")) if "verbs" in entries else (),
        text=text,
    )


def _first_sentence(body: str) -> str:
    """Returns the first sentence of a page's first paragraph, without its links' targets."""
    paragraph = body.lstrip("\n").partition("\n\n")[0]
    sentence = re.split(r"(?<=[.])\s", " ".join(paragraph.split()))[0]
    return re.sub(r"\]\([^)]*\)|\[", "", sentence)


def find_lines(pattern: "re.Pattern[str]") -> Iterator[tuple[DocPage, int, str]]:
    """Yields each line of any page that a pattern matches, with its page and number."""
    for page in load_pages().values():
        for number, line in enumerate(page.text.splitlines(), start=1):
            if pattern.search(line):
                yield page, number, line


@dataclass(frozen=True)
class SectionMatch:
    """A section of a page that has the words of a search.

    Attributes:
        topic: Name of the page.
        section: Heading of the section.
        line: First matching line below the heading; empty if only the heading matches.
    """

    topic: str
    section: str
    line: str


def find_sections(words: str) -> list[SectionMatch]:
    """Finds the sections of all pages that have the words, also as the beginning of longer words.

    Sections that have the words side by side are preferred. If no section does, those that have
    all of them anywhere are found.

    Returns:
        Pages with the words in their title first, then sections with them in their heading, then
        those that have them most often. The changelog comes last.
    """
    matches = _ranked_sections([words])
    if matches:
        return matches
    return _ranked_sections(words.split())


def _ranked_sections(phrases: list[str]) -> list[SectionMatch]:
    """Returns the sections in which every phrase begins a word, the most fitting first.

    First comes a page that the phrases name, then sections with the phrases in their heading, then
    those with the most matches. The changelog is last, as it names everything.
    """
    patterns = [re.compile(rf"(?<!\w){re.escape(phrase)}", re.IGNORECASE) for phrase in phrases]
    ranked = []
    for page_position, page in enumerate(load_pages().values()):
        for index, (heading, lines) in enumerate(_sections(page.text)):
            section = "\n".join([heading, *lines])
            if not all(pattern.search(section) for pattern in patterns):
                continue
            n_matches = sum(len(pattern.findall(section)) for pattern in patterns)
            in_heading = all(pattern.search(heading) for pattern in patterns)
            # The heading of the first section is the title of the page.
            is_named_page = index == 0 and (in_heading or phrases == [page.name])
            line = next((line for line in lines if patterns[0].search(line)), "")
            # The lowest rank comes first, and False before True.
            rank = (
                page.name == "changes",
                not is_named_page,
                not in_heading,
                -n_matches,
                page_position,
            )
            ranked.append((rank, SectionMatch(page.name, heading, line.strip())))
    ranked.sort(key=lambda match: match[0])
    return [match for _, match in ranked]


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the heading and the lines of each section; `#` in a block of code is no heading."""
    heading = ""
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        if re.match(r"#+ ", line) and not in_code:
            if heading:
                yield heading, lines
            heading = line.lstrip("#").strip()
            lines = []
        else:
            lines.append(line)
    yield heading, lines
