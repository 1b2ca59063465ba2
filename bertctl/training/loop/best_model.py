"""RUN/model: the best weights so far.

They are on the disk at once, or kept in memory until they have to be there.
"""

import shutil
from typing import TYPE_CHECKING, Literal

from bertctl.modeling.model import Model
from bertctl.run_folder import RunFolder
from bertctl.writing import failures_of

if TYPE_CHECKING:
    from torch import Tensor

ModelFile = Literal["each time", "at the end", "never"]
"""When RUN/model is written: with each new best; once, when the run is finished (short runs:
writing and syncing takes longer than scoring); or only into the checkpoint of an interrupted
run."""


class BestModel:
    """Keeps the best weights of one run.

    Args:
        model: whose weights they are.
        folder: the run.
        when: see `ModelFile`; several processes need `each time`.
    """

    def __init__(self, model: Model, folder: RunFolder, when: ModelFile) -> None:
        self._model = model
        self._folder = folder
        self._when = when
        self._weights: dict[str, Tensor] | None = None  # the best ones, if not on the disk yet

    def keep(self) -> bool:
        """Keeps the model's weights as the best so far.

        It returns whether they are on the disk now.
        """
        if self._when == "each time":
            self._model.save(self._folder.model)
            return True
        self._weights = self._model.copy_weights()
        return False

    def flush(self) -> None:
        """Writes the weights to the disk if they are in memory only.

        It is called when a checkpoint is about to copy them.
        """
        if self._weights is not None:
            self._model.save(self._folder.model, weights=self._weights)
            self._weights = None

    def load_back(self) -> None:
        """Puts the best weights back into the model, from memory or from the disk."""
        if self._weights is None:
            self._model.load(self._folder.model)
        else:
            self._model.set_weights(self._weights)

    def finish(self) -> None:
        """Brings RUN/model to its final state; the model holds the weights that stay."""
        if self._when == "at the end":
            self._model.save(self._folder.model)
        elif self._when == "never":
            shutil.rmtree(self._folder.model, ignore_errors=True)
        if self._model.adapter is not None and self._when != "never":
            self._publish_adapter()
        self._weights = None

    def _publish_adapter(self) -> None:
        """Moves the adapter out of RUN/model, where it was saved together with the weights."""
        from bertctl.modeling.lora import ADAPTER

        with failures_of(self._folder.adapter, replaced=True):
            shutil.rmtree(self._folder.adapter, ignore_errors=True)
            (self._folder.model / ADAPTER).rename(self._folder.adapter)
