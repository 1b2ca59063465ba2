"""`bertctl inspect`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.completion import model_names
from bertctl.cli.output import Output, plain_table
from bertctl.errors import UsageError
from bertctl.words import human_bytes

if TYPE_CHECKING:
    from rich.table import Table


def inspect(
    out: Output,
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", autocompletion=model_names)],
    other: Annotated[str | None, typer.Argument(metavar="[MODEL|RUN]", autocompletion=model_names)] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE")] = None,
    text_column: Annotated[str | None, typer.Option("--text-column", metavar="NAME")] = None,
    embeddings: Annotated[str | None, typer.Option("--embeddings", metavar="TEXT")] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT")] = None,
    length: Annotated[int | None, typer.Option("--length", min=1, metavar="TOKENS")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
) -> None:
    """Show what a model is made of: parameters by part, bytes, FLOPs, memory, tokenizer, labels. Nothing is loaded.

    Two models stand side by side.

    Args:
        model: Model name, folder, hub id, or run.
        other: A second one, to compare.
        file: Texts on which the layers of the two are compared, by linear CKA: lines, CSV, TSV, JSONL or Parquet.
        text_column: Column of --file with the texts.
        embeddings: Walk this text through the model instead: pieces, the vectors added for each, each layer's output.
        pair: Second text of the pair for --embeddings.
        length: Tokens of an example, for FLOPs and memory. Default: 128.
        batch_size: Examples of a batch, for memory.

    Examples:
        bertctl inspect minilm
        bertctl inspect minilm --embeddings "the bank of the river"
        bertctl inspect minilm runs/first --file reviews.csv
    """
    if embeddings is not None and (other or file):
        raise UsageError("--embeddings walks a text through one model", remedy="Leave the second model and --file out.")
    if file is not None and other is None:
        raise UsageError("--file is for comparing the layers of two models", remedy="Name a second model.")
    if pair is not None and embeddings is None:
        raise UsageError("--pair is the second text of --embeddings", remedy="Add --embeddings TEXT.")
    if embeddings is not None:
        from bertctl.interpretability.input_walk import walk_input

        with out.third_party_kept():
            walked = walk_input(model, embeddings, pair, listener=out)
        return out.answer({"model": model, **walked}, *_walk_tables(walked))
    from bertctl.interpretability.anatomy import inspect_model

    names = [model, *([other] if other else [])]
    found = [inspect_model(name, length=length, batch_size=batch_size) for name in names]
    if other is None:
        return out.answer(found[0], _facts(found), _parts(found[0]["parts"]))
    document: dict[str, Any] = {"models": found}
    tables = [_facts(found)]
    if file is not None:
        from bertctl.cli.texts import TextSource
        from bertctl.interpretability.layer_similarity import layer_similarity

        settings = {"text_column": text_column} if text_column else {}
        chunks = TextSource([str(file)], settings=settings).chunks(out)
        with out.third_party_kept():
            document["layers"] = layer_similarity(
                found[0]["folder"], found[1]["folder"], (chunk.texts for chunk in chunks), listener=out
            )
        tables.append(_similarity(document["layers"], names))
    return out.answer(document, *tables)


def _facts(found: Sequence[Mapping[str, Any]]) -> "Table":
    """Returns a column per model; what none of them has is left out."""
    table = plain_table("", *(one["model"] for one in found))
    columns = [_told(one) for one in found]
    for name in columns[0]:
        if any(column[name] for column in columns):
            table.add_row(name, *(column[name] for column in columns))
    return table


def _told(one: Mapping[str, Any]) -> dict[str, str]:
    run, sizes, work, need = one["run"], one["sizes"], one["flops"], one["memory_bytes"]
    about = f"{run['recipe']}: {run['task']}, {'probe on' if run['probe'] else 'from'} {run['model']}" if run else ""
    batch = f"{need['batch_size']} x {need['length']} tokens, fp32, CPU"
    return {
        "saved from": f"{one['trained_as']} ({one['family']})",
        "run": about,
        "labels": ", ".join(one["labels"]),
        "parameters": f"{one['parameters']:,}",
        "trainable": f"{one['trainable']:,}",
        "weights": ", ".join(f"{human_bytes(size)} {kind}" for kind, size in one["bytes"].items()),
        "layers": f"{sizes['layers']} of width {sizes['hidden']}, {sizes['heads']} heads",
        "longest input": f"{sizes['positions']:,} tokens" if sizes["positions"] else "no limit",
        "tokenizer": one["tokenizer"]["kind"] if one["tokenizer"] else "of a kind that only transformers reads",
        "FLOPs": f"{work['per_token'] / 1e6:,.1f} M per token, {work['per_example'] / 1e9:,.2f} G per {work['length']}",
        "memory": f"{human_bytes(need['run'])} to run, {human_bytes(need['train'])} to train, about ({batch})",
    }


def _parts(parts: Mapping[str, Any]) -> "Table":
    blocks = ("attention", "feed_forward", "other")
    table = plain_table("part", "parameters", *blocks, right=("parameters", *blocks))
    table.add_row("embeddings", f"{parts['embeddings']:,}")
    for number, layer in enumerate(parts["layers"], start=1):
        shown = (f"{layer[block]:,}" if layer[block] else "" for block in blocks)
        table.add_row(f"layer {number}", f"{sum(layer.values()):,}", *shown)
    for part in (part for part in ("pooler", "head", "other") if parts[part]):
        table.add_row(part, f"{parts[part]:,}")
    return table


def _walk_tables(walked: Mapping[str, Any]) -> list["Table"]:
    norms = list(walked["tokens"][0]["norms"])
    headers = [*(f"|{kind}|" for kind in norms[:-1]), "|sum, normalised|"]
    pieces = plain_table("position", "token", "id", "segment", *headers, right=("position", "id", "segment", *headers))
    for token in walked["tokens"]:
        shown = (f"{token['norms'][kind]:.3f}" for kind in norms)
        pieces.add_row(str(token["position"]), token["token"], str(token["id"]), str(token["segment"]), *shown)
    states = plain_table("output of", "shape", "mean norm", right=("mean norm",))
    for state in walked["states"]:
        name = f"layer {state['layer']}" if state["layer"] else "embeddings"
        states.add_row(name, " x ".join(map(str, state["shape"])), f"{state['mean_norm']:.3f}")
    return [pieces, states]


def _similarity(layers: Mapping[str, Any], names: Sequence[str]) -> "Table":
    columns = [str(number) for number in range(len(layers["cka"][0]))]
    title = f"linear CKA on {layers['texts']:,} texts: layers of {names[0]} (rows) and {names[1]}"
    table = plain_table("layer", *columns, title=title, right=tuple(columns))
    for number, row in enumerate(layers["cka"]):
        table.add_row(str(number), *(f"{value:.2f}" for value in row))
    return table
