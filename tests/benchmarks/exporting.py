"""A run as `predict` computes it against its exports.

Rows per second, size and the primary metric, in fp32 and in int8, on short and on long rows.

All of them answer the same rows in turns in one process. Long rows are several short ones behind
one another, up to the longest input of the run.
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bertctl.exporting.convert import lacking
from bertctl.exporting.export_model import ExportResult, export_model
from bertctl.exporting.proof import Comparison
from bertctl.exporting.quality import engine_speeds
from bertctl.exporting.request import ExportRequest
from bertctl.exporting.rows import comparison_rows
from bertctl.exporting.subject import open_subject
from bertctl.inference.engine import Engine
from bertctl.inference.graph_session import open_graph
from bertctl.progress import SILENT

KINDS = (("onnx", "fp32"), ("onnx", "int8"), ("openvino", "fp32"), ("openvino", "int8"))
WORDS = 12


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="a run of text-classification")
    parser.add_argument("--rows", type=Path, help="labelled rows in place of the run's own")
    parser.add_argument("--max-drop", type=float, default=0.005, help="of the primary metric")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        results = exports(options, Path(folder))
        subject = open_subject(options.run, {})
        rows = comparison_rows(
            subject.run, options.rows, is_run=True, with_labels=True, listener=SILENT
        )
        texts = list(rows.columns["text"])
        long = [" ".join(texts[i : i + WORDS]) for i in range(len(texts))]
        columns: Mapping[str, object] = {**rows.columns, "text": long}
        lengths = {"short": rows, "long": replace(rows, columns=columns)}
        print("| rows | engine | rows/s | of bertctl | size of fp32 | metric before, after |")
        print("|---|---|--:|--:|--:|---|")
        for length, rows_of_length in lengths.items():
            comparison = Comparison(subject, rows_of_length)
            engines: dict[str, Engine] = {"bertctl": comparison.default_engine()}
            for name, result in results.items():
                document = result.document
                assert document is not None
                path = Path(folder) / name / document.weights
                session = open_graph(path, document.format, threads=subject.compute.threads)
                engines[name] = comparison.engine(session)
            speeds = engine_speeds(comparison, engines)
            for name, speed in speeds.items():
                cells = [length, name, f"{speed:.0f}", f"{speed / speeds['bertctl']:.2f}"]
                print(f"| {' | '.join([*cells, *cost_of(results.get(name))])} |")


def exports(options: argparse.Namespace, folder: Path) -> dict[str, ExportResult]:
    """Exports the run to each format that is installed, in each precision."""
    results = {}
    for file_format, precision in KINDS:
        if lacking(file_format):
            continue
        name = f"{file_format}-{precision}"
        request = ExportRequest(
            path=options.run,
            file_format=file_format,
            output=folder / name,
            rows=options.rows,
            precision=precision,
        )
        if precision == "int8":
            primary = open_subject(options.run, {}).task.primary_metric
            request = replace(request, max_drop={primary: options.max_drop})
        result = export_model(request)
        if result.failures:
            print(f"{name}: {'; '.join(result.failures)}")
        else:
            results[name] = result
    return results


def cost_of(result: ExportResult | None) -> tuple[str, str]:
    """Returns what smaller numbers cost."""
    if result is None or result.quality is None:
        return ("", "")
    quality = result.quality
    share = quality.bytes_after / quality.bytes_before
    metrics = ", ".join(
        f"{name} {change.before:.4f}, {change.after:.4f}"
        for name, change in quality.metrics.items()
    )
    return (f"{share:.2f}", metrics)


if __name__ == "__main__":
    main()
