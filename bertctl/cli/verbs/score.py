"""`bertctl score`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.completion import model_names
from bertctl.cli.framework.output import Output, Shown
from bertctl.cli.inputs.texts import InputIds, TextSource, takes_texts, typed_text
from bertctl.errors import UsageError

_ODD = 10.0  # nats below 0 at which a token is shaded as strongly as can be


@takes_texts
def score(
    out: Output,
    source: TextSource,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    given: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")] = "",
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT")] = None,
    pll: Annotated[Literal["within-word", "token"], typer.Option("--pll")] = "within-word",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
) -> None:
    """Score how likely a text is under a masked language model, and which of two texts is likelier.

    Each token is masked in turn. The sum of the log-probabilities of the true tokens is the
    pseudo-log-likelihood.

    For a file you get a line of JSON per text, and the pseudo-perplexity of all. If the file has
    two columns of texts (the good one, the bad one), you get the share of rows in which the good
    one is likelier.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        model: Model name, folder or hub id, with the masked-word head.
        given: A text, or a file of texts, - for stdin.
        pair: A second text: which one is likelier?
        pll: Tokens that are masked together with each token: within-word, the later tokens of its
            word (Kauf and Ivanova 2023); token, no others (Salazar et al. 2020).
        output: File for the answers: lines of JSON, or by its suffix json, csv or tsv. An existing
            file is replaced. Default: stdout.

    Examples:
        bertctl score bert-base "The keys to the cabinet are on the table."
        bertctl score bert-base "The cats sleep." --pair "The cats sleeps."
        bertctl score bert-base blimp.jsonl -o scored.jsonl
    """
    text = typed_text(
        given,
        source,
        to="score",
        such_as="The keys are on the table.",
    )
    if pair is not None and (text is None or not pair.strip()):
        if text is not None:
            message = "--pair is empty"
        else:
            message = "--pair goes with a typed text, not with a file"
        raise UsageError(
            message,
            remedy="A file holds pairs in two columns: --text-column NAME --pair-column NAME.",
        )
    from bertctl.inference.layouts import layout_of
    from bertctl.inference.likelihood import Scorer
    from bertctl.inference.masked_words import MaskedModel
    from bertctl.inference.predict import Destination
    from bertctl.tokenization.stream import TextChunk

    with out.third_party_kept():
        scorer = Scorer(MaskedModel(model), pll)
        if text is not None:
            typed = [TextChunk([text], None if pair is None else [pair])]
        else:
            typed = None
        files_source = replace(source, files=[given] if given else [], beside=output)
        # The answers get the ids that the texts have in the file.
        ids = InputIds()
        chunks = ids.collect(typed or files_source.chunks(out))
        answers = ids.restore(scorer.score(chunks, listener=out))
        prints_one_document = output is None and (typed or out.as_json)
        if prints_one_document:
            scored = list(answers)
            if typed:
                document = {"model": model, "pll": pll, **scored[0]}
            else:
                document = {**scorer.summary(), "answers": scored}
            return out.answer(document, *_answer_parts(scored[0]))
        with streams.data() as stream:
            written = Destination(output, layout_of(output), stream).write(answers, None)
    summary = scorer.summary()
    if output is not None:
        out.answer({**summary, "files": written})
    out.say(_summary_line(summary))
    return None


def _answer_parts(answer: Mapping[str, Any]) -> Iterator[Shown]:
    """Yields a text with its unlikely tokens shaded, then a table of its tokens.

    Of a pair it yields both shaded texts, then which one is likelier.

    Args:
        answer: For one text: `text`, `pieces` and figures. For a pair: `good` and `bad`, the
            answers for the first and the second text, and which of them is likelier.
    """
    from bertctl.reporting.document import Passage, ShadedWord, record_table
    from bertctl.reporting.explanations import coloured_passage

    if "text" in answer:
        sides = {"": answer}
    else:
        sides = {"first": answer["good"], "second": answer["bad"]}
    for title, side in sides.items():
        words = []
        end = 0
        for piece in side["pieces"]:
            # What is between two tokens, mostly a space, has no likelihood and no shade.
            words.append(ShadedWord(side["text"][end : piece["start"]]))
            token_text = side["text"][piece["start"] : piece["end"]]
            words.append(ShadedWord(token_text, piece["log_likelihood"] / _ODD))
            end = piece["end"]
        yield from coloured_passage(Passage(title, words, _figures(side)))
        if "text" in answer:
            rows = [
                {"piece": piece["piece"], "log_likelihood": piece["log_likelihood"]}
                for piece in side["pieces"]
            ]
            yield record_table(rows, data=["piece"])
    if "text" not in answer:
        likelier = "first" if answer["right"] else "second"
        yield f"the {likelier} is likelier, by {abs(answer['difference']):.4f}"


def _figures(answer: Mapping[str, Any]) -> str:
    """Returns the log-likelihood and the pseudo-perplexity of one text, or of all texts."""
    return (
        f"log-likelihood {answer['log_likelihood']:.4f} of {answer['tokens']:,} tokens, "
        f"{answer['per_token']:.4f} each; "
        f"pseudo-perplexity {answer['pseudo_perplexity']:.4g}"
    )


def _summary_line(summary: Mapping[str, Any]) -> str:
    """Returns the figures of all texts; for pairs, in how many the first text is likelier."""
    figures_text = f"{summary['texts']:,} texts: {_figures(summary)}"
    if "pairs" not in summary:
        return figures_text
    share = summary["accuracy"]
    pairs = f"{summary['right']:,} of {summary['pairs']:,} pairs"
    return (
        f"the first is likelier in {pairs}: {share['value']:.1%} ({share['low']:.1%} to "
        f"{share['high']:.1%}); {figures_text}"
    )
