"""What few-shot training brought, beside the frozen encoder, from metrics.json of its run."""

from bertctl.reporting.document import Cell, Column, Note, Section, TableBlock
from bertctl.reporting.summary import figure
from bertctl.run_documents.few_shot_entry import FewShotDraw, FewShotEntry, FewShotScores
from bertctl.run_documents.metrics_document import PrimaryMetric


def few_shot_table(few_shot: FewShotEntry, primary: PrimaryMetric) -> TableBlock:
    """Returns a row per draw, and the means of several with their deviations.

    Args:
        few_shot: The entry of metrics.json.
        primary: The metric that it is about.
    """
    columns = [
        Column("draw"),
        *(
            Column(text, number=True)
            for text in (f"few-shot {primary.name}", "frozen", "difference")
        ),
    ]
    rows: list[list[str | Cell]] = [
        [f"seed {draw.seed}", *_figures(draw)] for draw in few_shot.draws
    ]
    if few_shot.deviation is not None:
        rows.append(["mean", *(Cell(text, strong=True) for text in _figures(few_shot.mean))])
        rows.append(["deviation", *_figures(few_shot.deviation)[:2], ""])
    return TableBlock(
        columns,
        rows,
        f"{few_shot.rows} training rows a draw; scored on {primary.split}.",
    )


def few_shot_section(few_shot: FewShotEntry, primary: PrimaryMetric) -> Section:
    """Returns the table of draws as a section of a page, with the verdict."""
    return Section(
        "few-shot",
        "Few-shot training",
        [few_shot_table(few_shot, primary), Note(few_shot.sentence)],
    )


def _figures(scores: FewShotScores | FewShotDraw) -> list[str]:
    """Returns both scores of a draw and their difference, as cells of a row."""
    difference = scores.few_shot - scores.frozen
    return [figure(scores.few_shot), figure(scores.frozen), f"{difference:+.4f}"]
