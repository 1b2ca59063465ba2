"""`bertctl export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertctl.cli.framework.next_command import say_next, use_of_run
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import takes_run
from bertctl.cli.framework.recipe_requests import RunRequest
from bertctl.errors import ExitCode, UsageError
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.exporting.export_model import ExportResult
    from bertctl.run_documents.export_document import ExportQuality

Format = Literal["onnx", "openvino"]


@takes_run("--data-dir", "columns", "--max-length", "--threads")
def export(
    out: Output,
    run: RunRequest,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")],
    to: Annotated[Format, typer.Option("--to")] = "onnx",
    rows: Annotated[Path | None, typer.Option("--rows", metavar="FILE")] = None,
    int8: Annotated[bool, typer.Option("--int8")] = False,
    fp16: Annotated[bool, typer.Option("--fp16")] = False,
    bf16: Annotated[bool, typer.Option("--bf16")] = False,
    max_drop: Annotated[list[str] | None, typer.Option("--max-drop", metavar="METRIC=X")] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", metavar="X")] = 1e-4,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Export a run for ONNX Runtime or OpenVINO, and check that it predicts the same.

    The folder has everything that predictions depend on: weights, tokenizer, labels, temperature
    and thresholds. If a prediction differs, no folder is written and the exit code is 7.

    Args:
        out: Prints the answer and messages.
        run: The run, as it was typed.
        output: Folder to write. Must be empty, or add --overwrite.
        to: Format of the model: onnx for ONNX Runtime, or openvino.
        rows: Rows to compare on. Default: the run's validation rows.
        int8: Keep weights in 8 bits: a quarter of the size, and faster on most CPUs.
        fp16: Keep weights in half precision (openvino).
        bf16: Compute in bf16 (openvino).
        max_drop: Largest drop of the metric on the rows, with --int8, --fp16 or --bf16; repeatable.
            Default: the run's primary metric, by 0.005.
        tolerance: Largest difference of a logit.
        overwrite: Replace the export that is in the folder.

    Examples:
        bertctl export runs/sst2-1a2b3c4d --to onnx -o exported
        bertctl export runs/sst2-1a2b3c4d --int8 --max-drop accuracy=0.005 -o small
        bertctl export my-org/tagger --rows sentences.jsonl -o exported
    """
    from bertctl.exporting.export_model import check_request, export_model
    from bertctl.exporting.quality import parse_drops
    from bertctl.exporting.request import ExportRequest

    chosen = [name for name, is_on in (("int8", int8), ("fp16", fp16), ("bf16", bf16)) if is_on]
    if len(chosen) > 1:
        raise UsageError(
            f"--{chosen[0]} and --{chosen[1]} exclude each other", remedy="Leave one of them out."
        )
    request = ExportRequest(
        path=run.path,
        file_format=to,
        output=output,
        rows=rows,
        tolerance=tolerance,
        overwrite=overwrite,
        precision=chosen[0] if chosen else "fp32",
        max_drop=None if max_drop is None else parse_drops(max_drop),
        options=run.options,
    )
    check_request(request)
    with out.third_party_kept():
        result = export_model(request, listener=out)
    out.answer(result.as_json(output), *_sentences(result, output))
    if result.failures:
        raise typer.Exit(int(ExitCode.GATE_NOT_MET))
    if result.document is not None:
        say_next(out, use_of_run(output, result.document.task))


def _sentences(result: "ExportResult", output: Path) -> list[str]:
    """Returns sentences on an export: what was proved, what it costs, and where it is.

    Args:
        result: The export, or what it failed at.
        output: The export's folder.
    """
    proof = result.proof
    if result.failures:
        return [
            f"FAIL: {'; '.join(result.failures)}.",
            "Nothing was written.",
        ]
    sentences = [
        f"{proof.rows} rows of {proof.source}: the same answers, largest difference "
        f"{proof.max_difference:.2g}.",
    ]
    if result.quality is not None:
        sentences += _cost(result.quality)
    return [*sentences, f"written to {output}"]


def _cost(quality: "ExportQuality") -> list[str]:
    """Returns sentences on what fewer bits cost: metrics, changed answers, size and speed."""
    sentences = []
    for name, change in quality.metrics.items():
        if change.p is None:
            test = ""
        else:
            test = f" (p {change.p:.3f}, {change.test})"
        sentences.append(f"{name}: {change.before:.4f}, then {change.after:.4f}{test}.")
    flips = sum(quality.flips.values())
    sentences.append(f"{flips} of {quality.rows} rows got another answer.")
    share = quality.bytes_after / quality.bytes_before
    speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in quality.rows_per_second.items())
    sentences.append(f"Size: {share:.2f} of fp32. Rows per second here: {speeds}.")
    if quality.fp32_layers:
        layers = count(len(quality.fp32_layers), "layer")
        sentences.append(f"Still in fp32: {layers}.")
    return sentences
