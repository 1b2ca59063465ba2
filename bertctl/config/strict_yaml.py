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

_PLAIN_VALUES = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN))$"
        ),
        list("-+0123456789."),
    ),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
)


_LENIENT = re.compile(r"[\t\ufeff]|[|>][-+0-9]*#")
"""What libyaml lets through at places where PyYAML does not."""

_REFUSED = object()
"""A value that was noted as a problem, and is left out."""


MOST_CHARACTERS, _MOST_NODES = 2**19, 20_000
"""What a recipe, a grid or a file of data sets may hold: characters, and keys and values."""


class _TooLargeError(Exception):
    """A document has more nodes than are read."""


class _Composer(yaml.composer.Composer, yaml.resolver.Resolver):
    """PyYAML's composer with YAML 1.2's plain values and without aliases."""

    # PyYAML's own attribute, emptied for this class.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012
    check_event: Any  # of the parser
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
    """What the composer needs, in PyYAML's words."""


if yaml.__with_libyaml__:

    class _FastLoader(_Composer, yaml.CSafeLoader):
        """The same by libyaml, in a fifth of the time; its complaints have other words."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)


def _root(text: str) -> yaml.Node | None:
    """Returns the root node of a text; what is refused is refused in PyYAML's words."""
    if len(text) > MOST_CHARACTERS:
        raise _TooLargeError
    if yaml.__with_libyaml__ and not _LENIENT.search(text):
        with contextlib.suppress(yaml.YAMLError, UnicodeError):
            return _FastLoader(text).get_single_node()
    return _Loader(text).get_single_node()


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes every text that would be taken for something else.

    YAML 1.1 or the loader above would take it so.
    """

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Writes equal lists out each time."""
        return True

    def represent_line(self, data: str) -> yaml.ScalarNode:
        """Writes a text on one line, whatever is in it."""
        if not data.isprintable():
            style = '"'
        else:
            style = None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    def represent_prose(self, data: "Prose") -> yaml.ScalarNode:
        """Writes a long text folded, where it can be read back so."""
        return self.represent_scalar("tag:yaml.org,2002:str", str(data), style=">")


class Prose(str):
    """A text for reading, whose lines may be folded."""

    __slots__ = ()


Dumper.add_representer(str, Dumper.represent_line)
Dumper.add_representer(Prose, Dumper.represent_prose)

for _tag, _pattern, _first in _PLAIN_VALUES:
    _Composer.add_implicit_resolver(_tag, _pattern, _first)
    Dumper.add_implicit_resolver(_tag, _pattern, _first)


@dataclass
class Document:
    """A YAML mapping as plain values.

    Attributes:
        values: nested dictionaries, lists and plain values; empty where the text could not be read.
        lines: line (from 1) of each key, by its path.
        problems: (line, sentence) of what is wrong with the text itself.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_document(text: str) -> Document:
    """Returns the mapping that a YAML text holds.

    Nothing is raised: what is wrong is in `problems`.
    """
    document = Document()
    try:
        node = _root(text)
        if isinstance(node, yaml.MappingNode):
            document.values = _mapping(node, (), document)
        else:
            kind_of_node = {yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}.get(
                type(node), "nothing"
            )
            document.problems.append(
                (1, f"{kind_of_node} found; sections with fields fit, such as `training:`")
            )
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(
            (line, f"the character {chr(error.character)!r} is not allowed in YAML")
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark:
            line = mark.line + 1
            column = mark.column + 1
        else:
            line = 1
            column = 1
        message = " ".join(filter(None, (error.context, error.problem)))
        document.problems.append((line, f"column {column}: not YAML: {message[:300]}"))
    except _TooLargeError:
        limits = f"{MOST_CHARACTERS:,} characters or {_MOST_NODES:,} keys and values"
        document.problems.append((1, f"larger than is read: more than {limits}"))
    except RecursionError:
        document.problems.append((1, "not a recipe: nested too deeply"))
    return document


def read_value(text: str, *, as_text: bool = False) -> Any:
    """Returns the plain value or list that stands behind `--set field=`.

    A text needs no quotes, whatever is in it; where it has them, they are taken off.

    Args:
        text: what stands behind the equals sign.
        as_text: the field holds a text, so `5` and `true` are texts too; only `null`, `~` and
            nothing are not.
    """
    text = text.strip()
    document = Document()
    try:
        node = _root(text)
        if node is None:
            value = None
        else:
            value = _value(node, (), document)
    except (yaml.YAMLError, RecursionError, _TooLargeError):
        return text
    quoted = isinstance(value, str) and text.startswith(("'", '"'))
    if quoted or (node is not None and value is None) or not text:
        return value
    # YAML would cut `a #b` short, and take `a: b` apart
    is_text = as_text or isinstance(value, str | dict) or node is None or document.problems
    return text if is_text else value


def _mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> dict[str, Any]:
    """Returns a YAML mapping as a dictionary, without keys and values that are refused.

    Args:
        node: The mapping.
        path: Keys that lead to it, such as `("training",)`; empty at the root.
        document: Gets the line of each key, and what is wrong with keys and values.
    """
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or not is_whole(key_node.value):
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a list or mapping"
            else:
                message = "half of a surrogate pair"
            document.problems.append((line, f"{message} stands where a key should be"))
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

    It is `_REFUSED`, with a problem in the document, for a value that is not allowed.

    Args:
        node: The value.
        path: Keys that lead to it, such as `("training", "epochs")`.
        document: Gets the lines of keys, and what is wrong.
    """
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_value(item, (*path, f"[{i}]"), document) for i, item in enumerate(node.value)]
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
        case "tag:yaml.org,2002:float" if _PLAIN_VALUES[2][1].match(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    line = node.start_mark.line + 1
    if is_whole(text):
        forbidden = f"the tag {node.tag} on this value"
    else:
        forbidden = "half of a surrogate pair"
    if node.tag.endswith(":int") and text.isdecimal():
        forbidden = "a number of more than 18 digits"
    document.problems.append((line, f"{'.'.join(path)}: {forbidden} is not allowed"))
    return _REFUSED
