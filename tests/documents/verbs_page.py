"""The pages of all verbs and options, made from the command line itself."""

import inspect
import re
from collections.abc import Iterator

import typer
from typer.core import TyperArgument, TyperOption

from bertctl.cli.app import VERBS
from bertctl.cli.framework.doc_pages import pages_of_verb
from bertctl.cli.framework.help import RARE, SHARED
from bertctl.errors import ExitCode
from tests.cli.test_surface import COMMANDS
from tests.documents.kept_outputs import console_block

EXIT_CODES = {
    ExitCode.OK: "Done. For `gate`: every check passes.",
    ExitCode.BUG: "A bug in bertctl. Please report it.",
    ExitCode.USAGE: (
        "An option, a recipe field or a combination of them is wrong. Nothing was started."
    ),
    ExitCode.DATA: "The data cannot be used: rows, columns, labels or bytes.",
    ExitCode.UNAVAILABLE: (
        "A file, model or data set is not available, or an output cannot be written."
    ),
    ExitCode.DEVICE: "A device is missing, or memory ran out.",
    ExitCode.DIVERGED: (
        "Training diverged. With `--strict` also: the model predicts one label for everything."
    ),
    ExitCode.GATE_NOT_MET: "`gate`: a check fails.",
    ExitCode.GATE_INCONCLUSIVE: "`gate`: no check fails, but one is inconclusive.",
    ExitCode.INTERRUPTED: "Ctrl-C. A checkpoint was saved if a training was running.",
    ExitCode.CUT: "Another program closed stdout before everything was printed.",
    ExitCode.TERMINATED: "SIGTERM or SIGHUP. A checkpoint was saved if a training was running.",
}
"""What each exit code means."""

_VERBS = """\
<!-- group: reference; order: 10 -->
# Verbs and options

This page lists every verb of bertctl with all its options. In your terminal, `bertctl VERB --help`
shows the usual options of a verb, and `bertctl VERB --help-all` shows all of them.

| verb | what it does |
|---|---|
{table}

## Options of every verb

{shared}
"""

_AGENTS = """\
<!-- group: reference; order: 15; verbs: docs -->
# For scripts and agents

This page summarises the interface for scripts, and for programs that call bertctl. Read it first if
you automate something.

- Results go to stdout, messages to stderr. The exit code tells you what went wrong.
- `--json` prints exactly one JSON document on stdout, for errors too. bertctl never prompts.
- In a pipe, bertctl prints no progress bar and no colors. On a terminal, `CI=true` switches off the
  bar, and `AI_AGENT=1` switches off both.
- `-q` prints only warnings and errors. `bertctl runs ls -q` and `bertctl recipes ls -q` print only
  names.
- `--offline` never connects. `--dry-run` of `finetune`, `pretrain`, `sweep` and `runs gc` changes
  nothing.
- `--resume` continues an interrupted command. `--resume-if-any` continues it if it was started
  before, and starts it otherwise.

## Five commands for most jobs

<!-- needs: files of your own -->
```sh
bertctl data check train.csv validation.csv --json
bertctl finetune train.csv --validation-file validation.csv --model minilm -o runs/new --json
bertctl gate runs/new --min accuracy=0.8 --json
bertctl predict runs/new texts.csv -o predictions.jsonl
bertctl docs WORD
```

With `--json`, all errors have the same form, which `bertctl/schemas/error.json` describes. For
example:

{error}

## Verbs

{verbs}

## Exit codes

{codes}

## JSON documents

The JSON Schemas ship in `bertctl/schemas/`. See [the run folder](run-folder.md) for the files of a
run.

{schemas}
"""


def verbs_page() -> str:
    """Returns the page of all verbs and options."""
    table = "\n".join(f"| [{verb.name}](verbs.md#{verb.name}) | {verb.summary} |" for verb in VERBS)
    any_verb = next(iter(COMMANDS.values()))
    shared = "\n".join(_option(option) for option in _options(any_verb) if _is_shared(option))
    parts = [_VERBS.format(table=table, shared=shared)]
    for verb in VERBS:
        parts.append(f"## {verb.name}\n")
        commands = {
            name: context for name, context in COMMANDS.items() if name.split()[0] == verb.name
        }
        for name, context in commands.items():
            if len(commands) > 1:
                parts.append(f"### {name}\n")
            parts.append("\n".join(_command(name, context)) + "\n")
        pages = ", ".join(f"[{page}]({page}.md)" for page in pages_of_verb(verb.name))
        parts.append(f"Read more: {pages}.\n")
    return "\n".join(parts)


def agents_page() -> str:
    """Returns the page for scripts and agents."""
    from tests.documents.schemas import SCHEMAS

    verbs = []
    for name, context in COMMANDS.items():
        summary = _sentence(context.command.help or "")
        usage = " ".join([name, *_metavars(context)])
        verbs.append(f"| `bertctl {_cell(usage)}` | {summary} |")
    codes = [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    schemas = [f"| `{path.name}` | {_SCHEMAS[path.stem]} |" for path in sorted(SCHEMAS.glob("*"))]
    return _AGENTS.format(
        error=console_block(
            "agents", 'bertctl gate runs/missing --min accuracy=0.8 --json; echo "exit code $?"'
        ),
        verbs="\n".join(["| command | what it does |", "|---|---|", *verbs]),
        codes="\n".join(["| code | meaning |", "|---|---|", *codes]),
        schemas="\n".join(["| schema | document |", "|---|---|", *schemas]),
    )


_SCHEMAS = {
    "distillation": "`RUN/distillation.json`: comparison of a student with its teacher",
    "environment": "`RUN/environment.json`: versions, device, precision, hashes of data and model",
    "export": "`EXPORT/export.json`: an exported model, and the check of its predictions",
    "error": "the output of a command that fails, with `--json`",
    "history": "a line of `RUN/history.jsonl`",
    "lock": "`bertctl.lock`",
    "metrics": "`RUN/metrics.json`: scores with intervals",
    "performance": "`RUN/performance.json`: seconds, speed, memory",
    "prediction": "a line of `RUN/predictions/SPLIT.jsonl` and of `predict`",
    "probe": "`RUN/probe.json`",
    "recipe": "a recipe; `bertctl recipes schema` prints this schema",
    "sweep": "`SWEEP/sweep.json`: settings, scores, the chosen setting",
    "status": "`RUN/status.json`: state and progress",
    "index": "`INDEX/index.json`",
}


def _command(name: str, context: typer.Context) -> Iterator[str]:
    """Yields the lines about one command: usage, description, arguments and options."""
    yield "```text"
    yield " ".join(["bertctl", name, *_metavars(context), "[OPTIONS]"])
    yield "```\n"
    yield _description(context.command.help or "")
    arguments = [
        one for one in context.command.get_params(context) if isinstance(one, TyperArgument)
    ]
    if arguments:
        yield "\nArguments:\n"
        for argument in arguments:
            yield f"- `{argument.metavar}`: {_one_paragraph(argument.help)}"
    options = [option for option in _options(context) if not _is_shared(option)]
    for title, is_rare in (("Options", False), ("Rarely needed", True)):
        members = [one for one in options if (one.rich_help_panel == RARE) == is_rare]
        if members:
            yield f"\n{title}:\n"
            yield from map(_option, members)


def _option(option: TyperOption) -> str:
    flags = ", ".join(
        f"`{flag}`" for flag in [*sorted(option.opts, key=len), *option.secondary_opts]
    )
    value = "" if option.is_flag or not option.metavar else f" `{option.metavar}`"
    default = ""
    if option.default not in (None, False, True, "", (), []):
        default = f" Default: `{option.default}`."
    return f"- {flags}{value}: {_usual_help(option.help)}{default}"


def _options(context: typer.Context) -> list[TyperOption]:
    return [one for one in context.command.get_params(context) if isinstance(one, TyperOption)]


def _is_shared(option: TyperOption) -> bool:
    return option.rich_help_panel == SHARED or option.name == "help"


def _metavars(context: typer.Context) -> list[str]:
    parameters = context.command.get_params(context)
    return [str(one.metavar) for one in parameters if isinstance(one, TyperArgument)]


def _description(docstring: str) -> str:
    """Returns a docstring as Markdown: its examples become a block of commands."""
    paragraphs = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        title, _, examples = paragraph.partition("\n")
        if title == "Examples:":
            paragraphs.append(f"```text\n{inspect.cleandoc(examples)}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _usual_help(text: str | None) -> str:
    """Returns the first paragraph of an option's help, and its recipe field."""
    first, *others = (text or "").split("\n\n")
    field = next((line for line in others if line.startswith("Recipe field: ")), "")
    name = field.removeprefix("Recipe field: ").rstrip(".")
    section = name.rpartition(".")[0]
    link = f" [`{name}`](recipe-fields.md#{section})" if section else ""
    return _one_paragraph(first) + link


def _one_paragraph(text: str | None) -> str:
    return " ".join((text or "").split())


def _sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
