"""YAML as a person means it: YAML 1.2's plain values, no key twice, and every value knows its line.

PyYAML reads YAML 1.1, where `5e-5` is a text, `no` is false, `1:30` is 90 and `010` is 8. Here
`5e-5` is a number, only `true` and `false` are booleans, and numbers are decimal. Anchors, aliases
and tags that make objects are refused.
"""

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from bertctl.documents import is_whole

KeyPath = tuple[str, ...]

_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN))$"
)
"""A plain value that YAML 1.2 reads as a float: `0.5`, `5e-5`, `.inf`."""

_PLAIN_VALUES = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")),
    ("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789.")),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
)
"""YAML 1.2's types of plain values: tag, pattern of the whole text, characters that it can begin
with (PyYAML looks patterns up by these)."""


_LENIENT = re.compile(r"[\t\ufeff]|[|>][-+0-9]*#")
"""Text that libyaml accepts in positions where PyYAML refuses it."""

_REFUSED = object()
"""Stands for a value that is not allowed. It is among the problems, and is left out."""


MOST_CHARACTERS = 2**19
"""The most characters that a recipe, a grid or a file of data sets may have."""

_MOST_NODES = 20_000
"""The most keys and values that it may have."""


class _TooLargeError(Exception):
    """Error for a document with too many characters or nodes."""


class _Composer(yaml.composer.Composer, yaml.resolver.Resolver):
    """PyYAML's composer with YAML 1.2's plain values and without aliases.

    A composer makes a tree of nodes from the parser's events.
    """

    # PyYAML's table of plain values. YAML 1.1's are replaced by `_PLAIN_VALUES` below.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012
    # Methods of the parser, which the classes below add.
    check_event: Any
    peek_event: Any

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Returns the next node as PyYAML does, and counts it.

        Raises:
            ComposerError: It is an alias: a few of them can stand for billions of values.
            _TooLargeError: The document has too many nodes.
        """
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"the alias *{event.anchor}: write the value out", event.start_mark
            )
        self.nodes = getattr(self, "nodes", 0) + 1
        if self.nodes > _MOST_NODES:
            raise _TooLargeError
        return super().compose_node(parent, index)


class _Loader(_Composer, yaml.SafeLoader):
    """The composer with PyYAML's own parser, whose error messages are shown."""


if yaml.__with_libyaml__:

    class _FastLoader(_Composer, yaml.CSafeLoader):
        """The composer with libyaml's parser: five times as fast, with other error messages."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)


def _root(text: str) -> yaml.Node | None:
    """Returns the root node of a YAML text; None if it has no value.

    libyaml reads it if it is installed. A text that libyaml refuses, or accepts too easily, is read
    by PyYAML, so that error messages are the same everywhere.
    """
    if len(text) > MOST_CHARACTERS:
        raise _TooLargeError
    if yaml.__with_libyaml__ and not _LENIENT.search(text):
        with contextlib.suppress(yaml.YAMLError, UnicodeError):
            return _FastLoader(text).get_single_node()
    return _Loader(text).get_single_node()


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes every text that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Returns that no value is replaced by an alias: the same list is written out each time."""
        return True

    def represent_line(self, data: str) -> yaml.ScalarNode:
        """Returns the node of a text on one line; line breaks are escaped in double quotes."""
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    def represent_prose(self, data: "Prose") -> yaml.ScalarNode:
        """Returns the node of a text that is folded (`>`): wrapped over several lines."""
        return self.represent_scalar("tag:yaml.org,2002:str", str(data), style=">")


class Prose(str):
    """A text for reading, whose lines may be folded."""

    __slots__ = ()


Dumper.add_representer(str, Dumper.represent_line)
Dumper.add_representer(Prose, Dumper.represent_prose)

for _tag, _pattern, _first_characters in _PLAIN_VALUES:
    _Composer.add_implicit_resolver(_tag, _pattern, _first_characters)
    Dumper.add_implicit_resolver(_tag, _pattern, _first_characters)


@dataclass
class Document:
    """A YAML mapping as plain values.

    Attributes:
        values: Nested dictionaries, lists and plain values; empty if the text could not be read.
        lines: Path of each key, such as `("training", "epochs")` -> its line, from 1.
        problems: (line, sentence) for each fault of the text itself.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_document(text: str) -> Document:
    """Returns the mapping of a YAML text.

    It raises no error: faults are in the document's `problems`.
    """
    document = Document()
    try:
        node = _root(text)
        if isinstance(node, yaml.MappingNode):
            document.values = _mapping(node, path=(), document=document)
        else:
            names_of_nodes = {yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}
            name_of_node = names_of_nodes.get(type(node), "nothing")
            document.problems.append(
                (1, f"{name_of_node} found; sections with fields fit, such as `training:`")
            )
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(
            (line, f"the character {chr(error.character)!r} is not allowed in YAML")
        )
    except yaml.MarkedYAMLError as error:
        line = 1
        column = 1
        mark = error.problem_mark or error.context_mark
        if mark:
            # PyYAML counts from 0.
            line = mark.line + 1
            column = mark.column + 1
        message = " ".join(filter(None, (error.context, error.problem)))
        document.problems.append((line, f"column {column}: not YAML: {message[:300]}"))
    except _TooLargeError:
        limits = f"{MOST_CHARACTERS:,} characters or {_MOST_NODES:,} keys and values"
        document.problems.append((1, f"larger than is read: more than {limits}"))
    except RecursionError:
        document.problems.append((1, "not a recipe: nested too deeply"))
    return document


def read_value(text: str, *, as_text: bool = False) -> Any:
    """Returns the value that was typed after `--set field=`: a plain value, a list or a text.

    A text needs no quotes, whatever is in it. If it has them, they are removed. Everything that
    YAML refuses is a text, too.

    Args:
        text: What was typed after the equals sign.
        as_text: Whether the field's value is a text. Then `5` and `true` are texts, too. Only
            `null`, `~` and an empty text give None.
    """
    text = text.strip()
    if not text:
        return None
    document = Document()
    try:
        node = _root(text)
        if node is None:  # the text is only a comment
            return text
        value = _value(node, path=(), document=document)
    except (yaml.YAMLError, RecursionError, _TooLargeError):
        return text
    is_quoted = isinstance(value, str) and text.startswith(("'", '"'))
    if is_quoted or value is None:
        return value
    # YAML would leave out `#b` of `a #b`, and read `a: b` as a mapping. Both are texts here.
    is_text = isinstance(value, str | dict)
    if as_text or is_text or document.problems:
        return text
    return value


def _mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> dict[str, Any]:
    """Returns a YAML mapping as a dictionary, without keys and values that are refused.

    Args:
        node: The mapping.
        path: Keys that lead to it, such as `("training",)`; empty at the root.
        document: The line of each key, and the faults of keys and values, are added to it.
    """
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or not is_whole(key_node.value):
            if not isinstance(key_node, yaml.ScalarNode):
                unusable_key = "a list or mapping"
            else:
                unusable_key = "half of a surrogate pair"
            document.problems.append((line, f"{unusable_key} stands where a key should be"))
            continue
        key: str = key_node.value
        key_path = (*path, key)
        if key_path in document.lines:
            name = ".".join(key_path)
            document.problems.append(
                (line, f"{name}: given twice, first in line {document.lines[key_path]}; keep one")
            )
            continue
        document.lines[key_path] = line
        value = _value(value_node, key_path, document)
        if value is not _REFUSED:
            values[key] = value
    return values


def _value(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    """Returns the plain value, list or dictionary of a node.

    For a value that is not allowed it returns `_REFUSED`, and adds a problem to the document.

    Args:
        node: The node.
        path: Keys that lead to it, such as `("training", "epochs")`.
        document: The lines of keys, and the faults, are added to it.
    """
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_value(item, (*path, f"[{i}]"), document) for i, item in enumerate(node.value)]
    # A value is read by its tag. A file can name any tag (`!!int x`), so the text must fit it, too.
    text = str(node.value)
    match node.tag:
        case "tag:yaml.org,2002:str" if is_whole(text):
            return text
        case "tag:yaml.org,2002:null":
            return None
        case "tag:yaml.org,2002:bool" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "tag:yaml.org,2002:int" if re.fullmatch(r"[-+]?[0-9]{1,18}", text):
            return int(text)
        case "tag:yaml.org,2002:float" if _FLOAT.match(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))

    # Everything else is refused.
    if not is_whole(text):
        forbidden = "half of a surrogate pair"
    elif node.tag.endswith(":int") and text.isdecimal():
        forbidden = "a number of more than 18 digits"
    else:
        forbidden = f"the tag {node.tag} on this value"
    line = node.start_mark.line + 1
    document.problems.append((line, f"{'.'.join(path)}: {forbidden} is not allowed"))
    return _REFUSED
