"""RUN/model: the best weights so far, on the disk at once or kept in memory until they have to be there."""

from typing import TYPE_CHECKING, Literal

from bertctl.modeling.weights import copy_weights
from bertctl.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.load import LoadedModel

ModelFile = Literal["each time", "at the end", "never"]
"""When RUN/model is written: with each new best; once, when the run is finished (short runs: writing and syncing takes
longer than scoring); or only into the checkpoint of an interrupted run."""


class BestModel:
    """The best weights of one run.

    Args:
        loaded: the model they belong to.
        folder: the run.
        when: see `ModelFile`; several processes need `each time`.
    """

    def __init__(self, loaded: "LoadedModel", folder: RunFolder, when: ModelFile) -> None:
        self._loaded = loaded
        self._folder = folder
        self._when = when
        self._weights: dict[str, Tensor] | None = None  # better than those on the disk

    def keep(self, network: "nn.Module") -> bool:
        """Keeps the network's weights as the best so far, and returns whether they are on the disk now."""
        if self._when == "each time":
            self._save(network)
            return True
        self._weights = copy_weights(network)
        return False

    def flush(self) -> None:
        """Have them on the disk: a checkpoint is about to copy them."""
        if self._weights is not None:
            self._save(self._loaded.network, self._weights)
            self._weights = None

    def load_into(self, network: "nn.Module") -> None:
        """Give them back to the network."""
        from bertctl.modeling.load import load_weights

        if self._weights is None:
            load_weights(network, self._folder.model)
        else:
            network.load_state_dict(self._weights, strict=False)  # tied weights are stored once

    def finish(self, network: "nn.Module") -> None:
        """The run is finished and the network holds the weights that stay."""
        if self._when == "at the end":
            self._save(network)
        elif self._when == "never":
            import shutil

            shutil.rmtree(self._folder.model, ignore_errors=True)
        self._weights = None

    def _save(self, network: "nn.Module", weights: "dict[str, Tensor] | None" = None) -> None:
        from bertctl.modeling.load import save_model

        save_model(self._loaded, network, self._folder.model, weights=weights)
