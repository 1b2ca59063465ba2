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
        return _show_embeddings(out, model, embeddings, pair)
    from bertctl.interpretability.anatomy import inspect_model

    anatomy = inspect_model(model, length=length, batch_size=batch_size)
    if other is None:
        return out.answer(anatomy, _facts([anatomy]), _parts(anatomy["parts"]))

    other_anatomy = inspect_model(other, length=length, batch_size=batch_size)
    anatomies = [anatomy, other_anatomy]
    document: dict[str, Any] = {"models": anatomies}
    tables = [_facts(anatomies)]
    if file is not None:
        from bertctl.cli.inputs.texts import TextSource
        from bertctl.interpretability.hidden_states import layer_similarity

        settings = {"text_column": text_column} if text_column else {}
        chunks = TextSource([str(file)], settings=settings).chunks(out)
        texts = (chunk.texts for chunk in chunks)
        with out.third_party_kept():
            similarity = layer_similarity(
                anatomy["folder"], other_anatomy["folder"], texts, listener=out
            )
        title = f"linear CKA on {similarity['texts']:,} texts: layers of {model} (rows) and {other}"
        document["layers"] = similarity
        tables.append(_similarity_table(similarity["cka"], title))
    return out.answer(document, *tables)


def _show_embeddings(out: Output, model: str, text: str, pair: str | None) -> None:
    """Prints a text's tokens with the lengths of their embeddings, and the output of each layer.

    Args:
        out: Prints the answer.
        model: Model that reads the text.
        text: The text.
        pair: A second text after it; None for none.
    """
    from bertctl.interpretability.hidden_states import walk_input

    with out.third_party_kept():
        walked = walk_input(model, text, pair, listener=out)
    tokens = []
    for token in walked["tokens"]:
        row = {name: token[name] for name in ("position", "token", "id", "segment")}
        # As in mathematics, |word| is the length of the vector `word`.
        row |= {f"|{kind}|": norm for kind, norm in token["norms"].items()}
        tokens.append(row)
    states = []
    for state in walked["states"]:
        shape = " x ".join(map(str, state["shape"]))
        states.append({**state, "shape": shape})
    out.answer(
        {"model": model, **walked},
        record_table(
            tokens,
            "Lengths of the vectors that are added for each token, and of their normalised sum.",
        ),
        "",
        record_table(states, "What each layer gives; 0: the embeddings."),
    )


def _similarity_table(cka: Sequence[Sequence[float]], title: str) -> TableBlock:
    """Returns a row for each layer of the first model, with a column for each of the second.

    Args:
        cka: Similarity of each layer of the first model to each layer of the second one.
        title: Title of the table.
    """
    rows = []
    for layer, similarities in enumerate(cka):
        by_layer = {str(other): value for other, value in enumerate(similarities)}
        rows.append({"layer": layer} | by_layer)
    return record_table(rows, title)


def _facts(anatomies: Sequence[Mapping[str, Any]]) -> TableBlock:
    """Returns a row for each fact and a column for each model.

    Facts that none of the models has are left out.
    """
    facts_by_model = [_model_facts(anatomy) for anatomy in anatomies]
    rows: list[list[str | Cell]] = []
    for name in facts_by_model[0]:  # all models have the same names
        cells = [facts[name] for facts in facts_by_model]
        if any(cells):
            rows.append([name, *cells])
    columns = [Column(""), *(Column(anatomy["model"]) for anatomy in anatomies)]
    return TableBlock(columns, rows)


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
