"""What `extract-features` was asked for."""

from dataclasses import dataclass, field
from pathlib import Path

from bertctl.inference.shards import Sharing
from bertctl.tokenization.long_texts import LongText


@dataclass(frozen=True)
class VectorNames:
    """Vectors that are asked for, by names; `encoder.VectorSpec` is what a model makes of them.

    Attributes:
        layers: Names or numbers.
        poolings: How the vector of a text is made of the vectors of its tokens.
        words: How the vector of a word is made of its tokens' vectors; None for no words.
        special_tokens: Whether [CLS], [SEP] and other special tokens count.
        normalize: Whether each vector is scaled to length 1.
        prompt: Name of the model's prompt that is put before each text; None for its default one.
    """

    layers: tuple[str, ...] = ("last",)
    poolings: tuple[str, ...] = ("mean",)
    words: str | None = None
    special_tokens: bool = True
    normalize: bool = False
    prompt: str | None = None


@dataclass(frozen=True)
class ExtractJob:
    """Extraction: what is computed, into which file.

    Attributes:
        output: OUT.
        long: The longest window in tokens, and what is read of longer texts.
        source: What the input is called.
        dtype: Type of the numbers in the file.
        keep_text: Whether texts are written where the format has room.
        backend: `torch`, `onnx` or `openvino`; `auto` for the fastest of them.
        resume: Whether to continue where an earlier attempt was stopped.
        overwrite: Start again where an earlier attempt was stopped.
        sharing: Which shard of the input is computed here, if it is divided, and the files of the
            shards: OUT.parts/K-of-N.json, each with a folder of the same name.
    """

    output: Path
    long: LongText
    source: str = "memory"
    dtype: str = "float32"
    keep_text: bool = True
    backend: str = "torch"
    resume: bool = False
    overwrite: bool = False
    sharing: Sharing = field(default_factory=Sharing)

    @property
    def sidecar(self) -> Path:
        """Returns OUT.json."""
        return self.output.with_name(f"{self.output.name}.json")

    @property
    def folder(self) -> Path:
        """Returns OUT.parts, where whole rows lie until the file can be made.

        There is one folder per process.
        """
        return self.output.with_name(f"{self.output.name}.parts")
