"""`bertctl push`. Reads a run folder; nothing here needs torch."""

from typing import Annotated

import typer

from bertctl.cli.output import Output
from bertctl.cli.recipe_options import RunArgument

HubIdArgument = Annotated[
    str, typer.Argument(metavar="HUB-ID", help="Repository on the hub, org/name. It is created where there is none.")
]
PrivateOption = Annotated[bool, typer.Option("--private", help="Make the repository private where it is created.")]
PredictionsOption = Annotated[
    bool, typer.Option("--with-predictions", help="Upload the prediction files too; they hold the texts of your data.")
]
MessageOption = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Message of the commit.")]


def push(
    out: Output,
    run: RunArgument,
    hub_id: HubIdArgument,
    private: PrivateOption = False,
    with_predictions: PredictionsOption = False,
    message: MessageOption = None,
) -> None:
    """Put a run's model on the hub: weights, tokenizer, config and card, in one commit. Nothing is asked.

    The token is that of HF_TOKEN, or of an earlier login. Without a token, and offline, the push is refused.

    Examples:
        HF_TOKEN=... bertctl push runs/sst2-1a2b3c4d my-org/sst2-bert
    """
    from bertctl.reporting.publish import push_run
    from bertctl.run_folder import RunFolder

    with out.third_party_kept():
        document = push_run(
            RunFolder.open(run), hub_id, private=private, predictions=with_predictions, message=message, listener=out
        )
    out.answer(document, document["url"])
