"""`bertctl inspect`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.completion import model_names
from bertctl.cli.framework.output import Output
from bertctl.errors import UsageError
from bertctl.reporting.document import Cell, Column, TableBlock, record_table
from bertctl.words import human_bytes


def inspect(
    out: Output,
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", autocompletion=model_names)],
    other: Annotated[
        str | None, typer.Argument(metavar="[MODEL|RUN]", autocompletion=model_names)
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE")] = None,
    text_column: Annotated[str | None, typer.Option("--text-column", metavar="NAME")] = None,
    embeddings: Annotated[str | None, typer.Option("--embeddings", metavar="TEXT")] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT")] = None,
    length: Annotated[int | None, typer.Option("--length", min=1, metavar="TOKENS")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
) -> None:
    """Show what a model is made of: parameters by part, bytes, FLOPs, memory, tokenizer, labels.

    It does not load the weights. Two models are shown side by side.

    Args:
        out: Prints the answer and messages.
        model: Model name, folder, hub id, or run.
        other: A second model, to compare.
        file: Texts on which the layers of the two are compared, by linear CKA: lines, CSV, TSV,
            JSONL or Parquet.
        text_column: Column of --file with the texts.
        embeddings: Show instead what happens to this text: its tokens, their embeddings, and the
            output of each layer.
        pair: Second text of the pair for --embeddings.
        length: Tokens of an example, for FLOPs and memory. Default: 128.
        batch_size: Examples of a batch, for memory.

    Examples:
        bertctl inspect minilm
        bertctl inspect minilm --embeddings "the bank of the river"
        bertctl inspect minilm runs/first --file reviews.csv
    """
    if embeddings is not None and (other or file):
        raise UsageError(
            "--embeddings walks a text through one model",
            remedy="Leave the second model and --file out.",
        )
    if file is not None and other is None:
        raise UsageError(
            "--file is for comparing the layers of two models", remedy="Name a second model."
        )
    if pair is not None and embeddings is None:
        raise UsageError(
            "--pair is the second text of --embeddings", remedy="Add --embeddings TEXT."
        )
    if embeddings is not None:
        from bertctl.interpretability.hidden_states import walk_input

        with out.third_party_kept():
            walked = walk_input(model, embeddings, pair, listener=out)
        tokens = []
        for token in walked["tokens"]:
            row = {name: token[name] for name in ("position", "token", "id", "segment")}
            row |= {f"|{kind}|": norm for kind, norm in token["norms"].items()}
            tokens.append(row)
        caption = (
            "Lengths of the vectors that are added for each token, and of their normalised sum."
        )
        states = [
            {**state, "shape": " x ".join(map(str, state["shape"]))} for state in walked["states"]
        ]
        layers = record_table(states, "What each layer gives; 0: the embeddings.")
        return out.answer({"model": model, **walked}, record_table(tokens, caption), "", layers)
    from bertctl.interpretability.anatomy import inspect_model

    names = [model, *([other] if other else [])]
    anatomies = [inspect_model(name, length=length, batch_size=batch_size) for name in names]
    if other is None:
        return out.answer(anatomies[0], _facts(anatomies), _parts(anatomies[0]["parts"]))
    document: dict[str, Any] = {"models": anatomies}
    tables = [_facts(anatomies)]
    if file is not None:
        from bertctl.cli.inputs.texts import TextSource
        from bertctl.interpretability.hidden_states import layer_similarity

        chunks = TextSource(
            [str(file)], settings={"text_column": text_column} if text_column else {}
        ).chunks(out)
        with out.third_party_kept():
            first, second = (anatomy["folder"] for anatomy in anatomies)
            alike = layer_similarity(first, second, (chunk.texts for chunk in chunks), listener=out)
        rows = []
        for i, similarities in enumerate(alike["cka"]):
            by_layer = {str(j): value for j, value in enumerate(similarities)}
            rows.append({"layer": i} | by_layer)
        title = f"linear CKA on {alike['texts']:,} texts: layers of {model} (rows) and {other}"
        document["layers"] = alike
        tables.append(record_table(rows, title))
    return out.answer(document, *tables)


def _facts(anatomies: Sequence[Mapping[str, Any]]) -> TableBlock:
    """Returns a column per model; what none of them has is left out."""
    columns = [_model_facts(anatomy) for anatomy in anatomies]
    rows: list[list[str | Cell]] = []
    for name in columns[0]:
        cells = [column[name] for column in columns]
        if any(cells):
            rows.append([name, *cells])
    return TableBlock([Column(""), *(Column(anatomy["model"]) for anatomy in anatomies)], rows)


def _model_facts(anatomy: Mapping[str, Any]) -> dict[str, str]:
    """Returns what the table says of a model, such as `{"parameters": "4,386,178", ...}`.

    Each model has the same keys in the same order; what it lacks is empty.

    Args:
        anatomy: What `inspect_model` returns.
    """
    run = anatomy["run"]
    sizes = anatomy["sizes"]
    work = anatomy["flops"]
    need = anatomy["memory_bytes"]
    if run:
        origin = "probe on" if run["probe"] else "from"
        trained_for = f"{run['recipe']}: {run['task']}, {origin} {run['model']}"
    else:
        trained_for = ""
    if anatomy["tokenizer"]:
        tokenizer_kind = anatomy["tokenizer"]["kind"]
    else:
        tokenizer_kind = "of a kind that only transformers reads"
    batch = f"{need['batch_size']} x {need['length']} tokens, fp32, CPU"
    return {
        "saved from": f"{anatomy['trained_as']} ({anatomy['family']})",
        "run": trained_for,
        "labels": ", ".join(anatomy["labels"]),
        "parameters": f"{anatomy['parameters']:,}",
        "trainable": f"{anatomy['trainable']:,}",
        "weights": ", ".join(
            f"{human_bytes(size)} {kind}" for kind, size in anatomy["bytes"].items()
        ),
        "layers": f"{sizes['layers']} of width {sizes['hidden']}, {sizes['heads']} heads",
        "longest input": f"{sizes['positions']:,} tokens" if sizes["positions"] else "no limit",
        "tokenizer": tokenizer_kind,
        "FLOPs": f"{work['per_token'] / 1e6:,.1f} M per token, {work['per_example'] / 1e9:,.2f} G "
        f"per {work['length']}",
        "memory": f"{human_bytes(need['run'])} to run, {human_bytes(need['train'])} to train, "
        f"about ({batch})",
    }


def _parts(parts: Mapping[str, Any]) -> TableBlock:
    """Returns the parameters of each part: embeddings, each layer with its blocks, pooler, head.

    Args:
        parts: Counts; those of `layers` are a list with a mapping of block to count per layer.
    """
    layers = [
        {"part": f"layer {i}", "parameters": sum(layer.values()), **layer}
        for i, layer in enumerate(parts["layers"], 1)
    ]
    above_layers = [
        {"part": part, "parameters": parts[part]}
        for part in ("pooler", "head", "other")
        if parts[part]
    ]
    return record_table(
        [{"part": "embeddings", "parameters": parts["embeddings"]}, *layers, *above_layers]
    )
