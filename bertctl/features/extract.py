"""`extract-features`: rows in, vectors out, some thousands at a time; can be stopped, killed and taken up again.

The input is cut into windows of rows, the same ones every time. A window's rows are sorted by length, computed in
batches of like lengths, and written in their own order; so one process, several, and a second attempt make the same
batches, and the same numbers.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertctl.data.rows import Rows
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.features.encoder import Encoder
from bertctl.features.memory import give_back
from bertctl.features.sinks import Shape, Sink, Window, stacked
from bertctl.features.store import IN_PLACE, check_output, finish, join_parts, open_sink, parts_of, sidecar_of
from bertctl.features.units import UnitMaker
from bertctl.features.windows import memory_pieces, peeked, windows
from bertctl.inference.evaluate import TRUNCATION_WARNING_SHARE
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, write_json
from bertctl.tokenization.reference import tokens_by_id

_SECONDS_BETWEEN_COMMITS = 2.0


@dataclass(frozen=True)
class ExtractJob:
    """What to extract, into which file.

    Attributes:
        output: OUT.
        max_length: longest unit in tokens.
        stride: of windows over long texts; None cuts them.
        dtype: of the numbers in the file.
        keep_text: whether texts are written where the format has room.
        backend: torch, onnx or openvino.
    """

    output: Path
    max_length: int
    stride: int | None = None
    dtype: str = "float32"
    keep_text: bool = True
    backend: str = "torch"


@dataclass(frozen=True)
class Process:
    """One of several that share the work."""

    rank: int = 0
    count: int = 1
    wait: Callable[[], None] = field(default=lambda: None)


@dataclass
class _Progress:
    """What is done, as the sidecar keeps it."""

    rows: int = 0
    windows: list[list[int]] = field(default_factory=list)  # process, rows, vectors of each window that is done here
    truncated: int = 0
    lost_tokens: int = 0
    unknown_tokens: int = 0
    tokens: int = 0
    sink: dict[str, int] = field(default_factory=dict)


def extract(
    portions: Iterable[Rows],
    encoder: Encoder,
    job: ExtractJob,
    *,
    source: str,
    resume: bool = False,
    overwrite: bool = False,
    process: Process | None = None,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Compute the vectors of all rows and write them to `job.output`.

    Args:
        portions: the rows in order, in portions of at most `PORTION`, the same ones in each attempt.
        encoder: ready, with what is wanted of it.
        job: where to, and how.
        source: what the input is called.
        resume: go on where an earlier attempt was stopped.
        overwrite: replace a file that is there.
        process: which of several this is; each gets all portions and computes every n-th window.
        listener: hears of progress, and is warned of cut texts.

    Returns:
        The content of OUT.json.

    Raises:
        UsageError: OUT is there and neither `resume` nor `overwrite` was said; a resume with other settings.
        DataError: no rows; a resume whose input has changed.
        UnavailableError: the disk is full; what is whole stays.
    """
    me = process or Process()
    portions = peeked(portions, source)
    check_output(job.output, by_token=encoder.wanted.by_token)
    shape = _shape(encoder, job)
    document = _document(encoder, job, shape, source, me.count)
    part = me.rank if me.count > 1 else None
    state_path = sidecar_of(job.output) if part is None else parts_of(job.output) / f"{part}.json"
    digest, done = _open_state(job.output, state_path, document, resume=resume, overwrite=overwrite)
    if done is not None and done.get("complete") and part is None:
        listener.say(f"{job.output} was finished: {done['rows']} rows")
        return done
    progress = _Progress(**done["progress"]) if done else _Progress()
    if part is None and job.output.suffix not in IN_PLACE:
        listener.say(
            f"a {job.output.suffix} file is made at the end; until then whole rows lie in {parts_of(job.output)}"
        )
    sink = open_sink(job.output, shape, part=part, state=progress.sink if done else None)
    try:
        _work(portions, encoder, job, document, digest, progress, sink, state_path, me, listener)
    finally:
        sink.close()
    return _finish(job, shape, document, progress, digest, state_path, me)


def _work(
    portions: Iterable[Rows],
    encoder: Encoder,
    job: ExtractJob,
    document: dict[str, Any],
    digest: "_Digest",
    progress: _Progress,
    sink: Sink,
    state_path: Path,
    me: Process,
    listener: Listener,
) -> None:
    maker = UnitMaker(
        encoder.loaded.tokenizer, max_length=job.max_length, stride=job.stride, by_token=encoder.wanted.by_token
    )
    per_token = sum(encoder.sizes)
    committed = time.monotonic()
    started = time.monotonic()
    seen = fresh = 0
    to_skip = progress.rows
    try:
        for number, rows in enumerate(windows(portions)):
            digest.add(rows)
            first, seen = seen, seen + len(rows)
            if seen <= to_skip:
                if seen == to_skip:
                    digest.check()
                continue
            vectors = 0
            if number % me.count == me.rank:
                for piece in memory_pieces(rows, encoder.wanted.by_token, per_token):
                    window = _compute(encoder, maker, piece, first, progress)
                    sink.append(window)
                    first += len(piece)
                    vectors += len(window.vectors)
                fresh += len(rows)
                give_back()
            progress.rows = seen
            if me.count > 1:
                progress.windows.append([number % me.count, len(rows), vectors])
            now = time.monotonic()
            listener.advance("rows", seen, seen, {"rows/s": fresh / max(1e-9, now - started)})
            if now - committed > _SECONDS_BETWEEN_COMMITS:
                progress.sink = sink.commit()
                write_json(state_path, _state(document, progress, digest, complete=False))
                committed = now
        if seen < to_skip:
            raise DataError(
                f"{document['source']} has {seen} rows, and {to_skip} had been extracted: it has changed",
                remedy="Start again with --overwrite.",
            )
        progress.sink = sink.commit()
    except UnavailableError as error:
        if "disk is full" not in error.message:
            raise
        raise UnavailableError(
            f"{error.message}; {_whole(state_path)} rows are whole",
            remedy="Free some space, then type the same command with --resume.",
        ) from error
    finally:
        listener.finish("rows")


def _compute(encoder: Encoder, maker: UnitMaker, rows: Rows, first: int, progress: _Progress) -> Window:
    units = maker.make(rows)
    progress.truncated += units.truncated
    progress.lost_tokens += units.lost_tokens
    progress.unknown_tokens += units.unknown
    progress.tokens += len(units.ids)
    if encoder.wanted.by_token:
        tokens = encoder.tokens(units)
        return Window(first, rows, stacked(tokens.vectors), tokens)
    return Window(first, rows, stacked(encoder.texts(units)), None)


class _Digest:
    """What the rows that are done hash to, so that a changed input is noticed when it is taken up again."""

    def __init__(self, expected: str | None) -> None:
        self._hash = hashlib.sha256()
        self._expected = expected

    def add(self, rows: Rows) -> None:
        """The next rows."""
        for name in ("text", "pair"):
            if rows.has(name):
                self._hash.update("\x00".join(rows.columns[name]).encode() + b"\x01")

    @property
    def value(self) -> str:
        """So far."""
        return self._hash.hexdigest()

    def check(self) -> None:
        """Refuse an input whose first rows are not those that were extracted."""
        if self._expected is not None and self._expected != self.value:
            raise DataError(
                "the input's first rows are not those that were extracted before: it has changed",
                remedy="Start again with --overwrite.",
            )


def _open_state(
    output: Path, state_path: Path, document: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> tuple[_Digest, dict[str, Any] | None]:
    """What an earlier attempt left, where it is to be gone on with."""
    left = output.exists() or state_path.exists()
    if not left or overwrite:
        return _Digest(None), None
    state: dict[str, Any] | None = None
    if state_path.exists():
        try:
            state = json.loads(state_path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{state_path} is no JSON: {error}", remedy="Start again with --overwrite.") from error
    if not resume:
        how = f"unfinished, {state['rows']} rows are whole" if state and not state["complete"] else "there"
        raise UsageError(
            f"{output} is {how}",
            remedy="Choose another file with -o"
            + (", go on with --resume" if state and not state["complete"] else "")
            + ", or replace it with --overwrite.",
        )
    if state is None:
        if output.exists():
            raise UsageError(
                f"{output} has no {state_path.name} beside it that says where to go on", remedy="Take --overwrite."
            )
        return _Digest(None), None
    for name in _MUST_AGREE:
        if state.get(name) != document[name]:
            raise UsageError(
                f"{output} was begun with {name} {state.get(name)!r}, and now it is {document[name]!r}",
                remedy="Give the same settings as before, or start again with --overwrite.",
            )
    return _Digest(state["texts_sha256"]), state


_MUST_AGREE = (
    "model_hash", "layers", "pooling", "special_tokens", "normalize", "max_length", "stride", "precision", "backend",
    "dtype", "processes",
)  # fmt: skip


def _shape(encoder: Encoder, job: ExtractJob) -> Shape:
    wanted = encoder.wanted
    learned = [layer.name for layer in wanted.layers if layer.is_learned]
    if learned:
        raise UsageError(
            f"'{learned[0]}' is a mix whose weights a probe learns; by itself it has no vectors",
            remedy=f"Take the layers it is made of, or `bertctl probe ... --layers {learned[0]}`.",
        )
    if not wanted.by_token and len(wanted.poolings) > 1:
        raise UsageError(
            "one file holds one pooling", remedy="Run it once for each, or use `bertctl probe` to compare them."
        )
    if len(set(encoder.sizes)) > 1:
        raise UsageError(
            "these layers have vectors of different sizes, which do not fit into one array",
            remedy="Run it once for each size.",
        )
    pooling = f"words-{wanted.words}" if wanted.words else wanted.poolings[0]
    needs_pieces = job.output.suffix == ".jsonl" and wanted.by_token
    return Shape(
        layers=tuple(layer.name for layer in wanted.layers),
        size=encoder.sizes[0],
        dtype=job.dtype,
        by_token=wanted.by_token,
        pooling=pooling,
        pieces=tuple(tokens_by_id(encoder.loaded.tokenizer)) if needs_pieces else (),
        keep_text=job.keep_text,
    )


def _document(encoder: Encoder, job: ExtractJob, shape: Shape, source: str, processes: int) -> dict[str, Any]:
    wanted = encoder.wanted
    return {
        "schema": SCHEMA,
        "source": source,
        "model": encoder.source.name,
        "model_hash": encoder.source.content_hash(),
        "layers": list(shape.layers),
        "pooling": shape.pooling,
        "special_tokens": wanted.special_tokens,
        "normalize": wanted.normalize,
        "max_length": job.max_length,
        "stride": job.stride,
        "precision": encoder.compute.precision,
        "backend": job.backend,
        "dtype": job.dtype,
        "processes": processes,
        "order": "as in the input",
    }


def _state(document: dict[str, Any], progress: _Progress, digest: _Digest, *, complete: bool) -> dict[str, Any]:
    counts = {
        name: getattr(progress, name) for name in ("rows", "tokens", "truncated", "lost_tokens", "unknown_tokens")
    }
    state = {**document, **counts, "texts_sha256": digest.value, "complete": complete}
    return state if complete else {**state, "progress": asdict(progress)}


def _whole(state_path: Path) -> int:
    try:
        return int(json.loads(state_path.read_text(encoding="utf-8"))["rows"])
    except (OSError, ValueError, KeyError):
        return 0


def _finish(
    job: ExtractJob,
    shape: Shape,
    document: dict[str, Any],
    progress: _Progress,
    digest: _Digest,
    state_path: Path,
    me: Process,
) -> dict[str, Any]:
    folder = parts_of(job.output)
    if me.count > 1:
        write_json(state_path, _state(document, progress, digest, complete=False))
        me.wait()
        if me.rank:
            me.wait()
            return {}
        states = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(me.count)]
        for name in ("truncated", "lost_tokens", "unknown_tokens", "tokens"):
            setattr(progress, name, sum(int(state["progress"][name]) for state in states))
        counted = [
            (process, rows, states[process]["progress"]["windows"][i][2])
            for i, (process, rows, _) in enumerate(progress.windows)
        ]
        progress.windows = [list(window) for window in counted]
        parts = [folder / str(rank) for rank in range(me.count)]
        join_parts(parts, counted, folder / "joined", shape)
        finish(job.output, shape, folder / "joined")
    elif job.output.suffix not in IN_PLACE:
        write_json(state_path, _state(document, progress, digest, complete=False))
        finish(job.output, shape, folder / "0")
    final = _state(document, progress, digest, complete=True) | {"shape": _final_shape(progress, shape)}
    write_json(sidecar_of(job.output), final)
    shutil.rmtree(folder, ignore_errors=True)
    if me.count > 1:
        me.wait()
    return final


def _final_shape(progress: _Progress, shape: Shape) -> list[int | None]:
    vectors = sum(window[2] for window in progress.windows) if progress.windows else progress.sink.get("vectors")
    return [vectors if shape.by_token else progress.rows, *shape.row_shape]


def warn_of_cut(document: Mapping[str, Any], *, listener: Listener) -> None:
    """Say how many texts were longer than the model reads."""
    if not document.get("truncated"):
        return
    share = document["truncated"] / document["rows"]
    text = (
        f"{document['truncated']} of {document['rows']} texts ({100 * share:.1f} %) are longer than "
        f"{document['max_length']} tokens and lose {document['lost_tokens']} tokens"
    )
    if share > TRUNCATION_WARNING_SHARE:
        listener.warn(f"{text}; --stride 32 reads them whole, in windows")
    else:
        listener.say(text)
