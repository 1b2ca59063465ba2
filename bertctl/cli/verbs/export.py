"""`bertctl export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import RunRequest, takes_run
from bertctl.errors import ExitCode

if TYPE_CHECKING:
    from bertctl.exporting.export_model import ExportResult

Format = Literal["onnx", "openvino"]


@takes_run("--data-dir", "columns", "--max-length", "--threads")
def export(
    out: Output,
    run: RunRequest,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")],
    to: Annotated[Format, typer.Option("--to")] = "onnx",
    rows: Annotated[Path | None, typer.Option("--rows", metavar="FILE")] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", metavar="X")] = 1e-4,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Export a run for ONNX Runtime or OpenVINO, proved on its rows to answer the same.

    The folder holds all that answers depend on: weights, tokenizer, labels, temperature and
    thresholds. If an answer differs, no folder is left and the exit code is 7.

    Args:
        output: Folder to make.
        to: Format of the graph: onnx for ONNX Runtime, or openvino.
        rows: Rows to compare on. Default: the run's validation rows.
        tolerance: Largest difference of a logit that is allowed.
        overwrite: Replace the export that is in the folder.

    Examples:
        bertctl export runs/sst2-1a2b3c4d --to onnx -o exported
        bertctl export my-org/tagger --rows sentences.jsonl -o exported
    """
    from bertctl.exporting.export_model import ExportRequest, check_request, export_model

    request = ExportRequest(
        path=run.path,
        file_format=to,
        output=output,
        rows=rows,
        tolerance=tolerance,
        overwrite=overwrite,
        options=run.options,
    )
    check_request(request)
    with out.third_party_kept():
        result = export_model(request, listener=out)
    out.answer(result.as_json(output), *_sentences(result, output))
    if result.failures:
        raise typer.Exit(int(ExitCode.GATE_NOT_MET))


def _sentences(result: "ExportResult", output: Path) -> list[str]:
    """Returns the answer for people."""
    proof = result.proof
    if result.failures:
        return [
            f"FAIL: {'; '.join(result.failures)}.",
            "Nothing was written.",
        ]
    return [
        f"{proof.rows} rows of {proof.source}: the same answers, largest difference "
        f"{proof.max_difference:.2g}.",
        f"written to {output}",
    ]
