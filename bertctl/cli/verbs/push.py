"""`bertctl push`. Reads a run folder; nothing here needs torch."""

from typing import Annotated

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import RunArgument


def push(
    out: Output,
    run: RunArgument,
    hub_id: Annotated[str, typer.Argument(metavar="HUB-ID")],
    private: Annotated[bool, typer.Option("--private")] = False,
    with_predictions: Annotated[bool, typer.Option("--with-predictions")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT")] = None,
) -> None:
    """Upload a run's model to the hub: weights, tokenizer, config and card, in one commit.

    bertctl uses the token in HF_TOKEN, or that of an earlier login, and never prompts. Without a
    token, and offline, it refuses to push.

    Args:
        out: Prints the answer and messages.
        run: The run, as it was typed.
        hub_id: Repository on the hub, org/name. It is created if it does not exist.
        private: If the repository is created, make it private.
        with_predictions: Upload the prediction files too; they hold the texts of your data.
        message: Message of the commit.

    Examples:
        HF_TOKEN=... bertctl push runs/sst2-1a2b3c4d my-org/sst2-bert
    """
    from bertctl.catalog.publish import push_run
    from bertctl.run_folder import RunFolder

    with out.third_party_kept():
        document = push_run(
            RunFolder.open(run),
            hub_id,
            private=private,
            predictions=with_predictions,
            message=message,
            listener=out,
        )
    out.answer(document, document["url"])
