"""Rows in, vectors out, into a file: some thousands at a time.

It can be stopped, killed and resumed.

The input is cut into chunks of rows, the same ones every time. A chunk's rows are sorted by length,
computed in batches of like lengths, and stored in their own order; so one process, several, and a
second attempt make the same batches, and the same numbers.
"""

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.data.rows import Rows
from bertctl.documents import read_json
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.features.chunks import chunks, require_rows, split_for_memory
from bertctl.features.encoded_windows import RowEncoder
from bertctl.features.encoder import TextEncoder
from bertctl.features.extract_job import ExtractJob
from bertctl.features.extraction_state import (
    MUST_AGREE,
    ExtractionState,
    Progress,
    check_unchanged,
    earlier_state_path,
    left_by_an_earlier_attempt,
    state_and_store,
)
from bertctl.features.feature_files import check_output, write_features
from bertctl.features.store import VectorLayout, VectorStore, join_stores, outliving
from bertctl.inference.shards import AGAIN
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, hold
from bertctl.runtime.heap import trim_heap
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tokenization.reference import tokens_by_id
from bertctl.words import command
from bertctl.writing import refuse_input, refuse_links, write_json

_SECONDS_BETWEEN_COMMITS = 2.0


def extract(
    stream: Iterable[Rows],
    encoder: TextEncoder,
    job: ExtractJob,
    *,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Computes the vectors of all rows and writes them to `job.output`.

    An attempt that was stopped is continued with `job.resume`: its vectors wait in `job.folder`,
    and a state file says how many rows are done. A shard computes only its chunks, and a merge
    joins the vectors of all shards.

    Args:
        stream: The rows in order, at most `READ_ROWS` at once, the same ones in each attempt.
        encoder: Loaded encoder, which knows the layers and poolings to compute.
        job: Output file, types, and what is done with an earlier attempt.
        workers: The processes that share the work; each gets the whole stream and computes every
            n-th chunk.
        listener: Receives progress messages.

    Returns:
        The content of OUT.json; in all processes but the first an empty one.

    Raises:
        UsageError: An unfinished OUT and neither `resume` nor `overwrite` was given; a resume with
            other settings; processes with other settings or rows.
        DataError: No rows; a resume whose input has changed.
        UnavailableError: The disk is full; what is whole stays.
    """
    stream = require_rows(stream, job.source)
    check_output(job.output, by_token=encoder.spec.by_token)
    refuse_input(job.sidecar)
    refuse_links(job.folder, job.folder / str(workers.rank), job.folder / "joined")
    layout = _layout(encoder, job)
    settings = _settings(encoder, job, layout, workers.count)
    workers.agree([settings.get(name) for name in MUST_AGREE])
    state_path, folder = state_and_store(job, workers)
    earlier_path = earlier_state_path(job, workers, state_path)
    shard = job.sharing.shard
    if shard:  # it computes like one process of several, but waits for no other process
        settings = settings | {"shard": list(shard)}
        workers = Workers(shard[0] - 1, shard[1])
    earlier = left_by_an_earlier_attempt(job, earlier_path, settings)
    workers.wait()  # the first process deletes the state that the others have just read
    if earlier is not None and earlier.get("complete"):
        check_unchanged(stream, ExtractionState(state_path, settings, earlier))
        listener.say(f"{job.output} was finished: {earlier['rows']} rows")
        shutil.rmtree(job.folder, ignore_errors=True)
        return earlier
    if job.sharing.is_merge:
        return _merge(stream, job, layout, settings)
    listener.say(f"{job.output} is made at the end; until then whole rows lie in {job.folder}")
    state = ExtractionState(state_path, settings, earlier)
    stored = state.progress.store if earlier else None

    def rows_saved() -> int:
        """Returns how many rows a process that is stopped now has saved, for the message."""
        return state.saved_rows

    try:
        with outliving(rows_saved):  # after Ctrl-C, the message has this number
            with hold(folder / ".lock"):
                if earlier is None and not shard:
                    # These state files describe vectors of the folder, which is made anew.
                    job.sidecar.unlink(missing_ok=True)
                    folder.with_suffix(".json").unlink(missing_ok=True)
                with closing(VectorStore(folder, layout, stored)) as store:
                    _compute_all(
                        stream,
                        encoder,
                        job,
                        state,
                        store,
                        workers,
                        listener,
                    )
            if job.sharing.paths:  # the merge of all shards writes the output
                return state.document(complete=False)
            return _finish(job, layout, state, ALONE if shard else workers)
    except UnavailableError as error:
        if "disk is full" not in error.message:
            raise
        message = f"{error.message}; {state.saved_rows} rows are whole"
        raise UnavailableError(
            message, remedy=f"{error.remedy} Then type the same command with `resume=True`."
        ) from error
    finally:
        listener.finish("rows")


def _merge(
    rows: Iterable[Rows], job: ExtractJob, layout: VectorLayout, settings: dict[str, Any]
) -> dict[str, Any]:
    """Writes the file of all shards, once their records show that they are of this input.

    Args:
        rows: The input, which is hashed.
        job: Where to, and paths of the shards' records.
        layout: Arrays of the file.
        settings: What shards must agree on.

    Returns:
        The content of OUT.json.

    Raises:
        UsageError: A shard has other rows or settings, or is not finished.
    """
    state = ExtractionState(job.sidecar, settings, None)
    paths = job.sharing.paths
    for chunk in chunks(rows):
        state.add(chunk)
        state.progress.rows += len(chunk)
    document = state.document(complete=True)
    for number, path in enumerate(paths, start=1):
        record = read_json(path, kind=DataError, remedy=AGAIN)
        expected = {**document, "shard": [number, len(paths)]}
        differing = [
            name
            for name in (*MUST_AGREE, "shard", "rows", "texts_sha256")
            if record.get(name) != expected.get(name)
        ]
        if differing:
            raise UsageError(
                f"{path} is of another whole, or not finished: other {', '.join(differing)}",
                remedy=AGAIN,
            )
    return _finish(job, layout, state, ALONE)


def _compute_all(
    stream: Iterable[Rows],
    encoder: TextEncoder,
    job: ExtractJob,
    state: ExtractionState,
    store: VectorStore,
    workers: Workers,
    listener: Listener,
) -> None:
    """Computes the vectors of this process's chunks, from where an earlier attempt ended.

    What was stored survives a kill: it is committed from time to time, and at the end.

    Args:
        stream: All rows of the input.
        encoder: Computes vectors.
        job: What is read of long texts.
        state: Progress and hash of the input so far.
        store: Takes the vectors.
        workers: The processes; of n processes each computes every n-th chunk.
        listener: Receives progress.

    Raises:
        DataError: The input is not the same as in the earlier attempt.
    """
    row_encoder = RowEncoder(
        encoder.engine.tokenizer,
        job.long,
        by_token=encoder.spec.by_token,
        sentence_modules=encoder.spec.sentence_modules,
    )
    progress = state.progress
    started_at = time.monotonic()
    committed_at = started_at
    n_read = 0
    n_computed = 0
    to_skip = progress.rows  # which an earlier attempt has done; they are only hashed
    for number, rows in enumerate(chunks(stream)):
        state.add(rows)
        n_read += len(rows)
        if n_read <= to_skip:
            if n_read == to_skip:
                state.check()
            continue
        n_vectors = 0
        if number % workers.count == workers.rank:
            # Vectors of all tokens of a chunk may not fit into memory.
            row_parts: Iterable[Rows] = [rows]
            if encoder.spec.by_token:
                row_parts = split_for_memory(rows, sum(encoder.sizes))
            for row_part in row_parts:
                n_vectors += _compute(
                    encoder,
                    row_encoder,
                    row_part,
                    progress,
                    store,
                )
            n_computed += len(rows)
            # Vectors and layers of all sizes leave holes in the heap: 12 MB more every few chunks.
            # Filling it again costs a sixtieth of a chunk's time, so it is trimmed at every fourth.
            if number // workers.count % 4 == 3:
                trim_heap()
        progress.rows = n_read
        if workers.count > 1 or job.sharing.shard:
            progress.chunks.append([number % workers.count, len(rows), n_vectors])
        current_time = time.monotonic()
        rows_per_second = n_computed / max(1e-9, current_time - started_at)
        listener.advance("rows", n_read, 0, {"rows/s": rows_per_second})
        if current_time - committed_at > _SECONDS_BETWEEN_COMMITS:
            state.save(store.commit())
            committed_at = current_time
    if n_read < to_skip:
        message = (
            f"{job.source} has {n_read} rows, and {to_skip} had been extracted: it has changed"
        )
        raise DataError(message, remedy="Start again with `overwrite=True`.")
    state.save(store.commit())


def _compute(
    encoder: TextEncoder,
    row_encoder: RowEncoder,
    rows: Rows,
    progress: Progress,
    store: VectorStore,
) -> int:
    """Computes the vectors of rows, adds them to the store, and returns how many they are.

    Args:
        encoder: Computes vectors.
        row_encoder: Makes windows of ids of the rows.
        rows: N rows.
        progress: Its counts of tokens grow.
        store: Takes the vectors.
    """
    windows = row_encoder.encode(rows)
    progress.truncated += windows.truncated
    progress.lost_tokens += windows.truncated_tokens
    progress.unknown_tokens += windows.unknown
    progress.tokens += len(windows.encoded.ids)
    if encoder.spec.by_token:
        tokens = encoder.tokens(windows)
        layers = tokens.vectors
    else:
        tokens = None
        layers = encoder.texts(windows)
    # (N, K, D) for K layers. A single one is not copied.
    if len(layers) == 1:
        vectors = layers[0][:, None]
    else:
        vectors = np.stack(layers, axis=1)
    store.append(rows, vectors, tokens)
    return len(vectors)


def _layout(encoder: TextEncoder, job: ExtractJob) -> VectorLayout:
    """Returns the arrays of the output file: layers, size and type of vectors, names of tokens.

    Raises:
        UsageError: Vectors that do not fit into one array.
    """
    spec = encoder.spec
    learned = [layer.name for layer in spec.layers if layer.is_learned]
    if learned:
        message = (
            f"'{learned[0]}' is a mix whose weights a probe learns; by itself it has no vectors"
        )
        raise UsageError(
            message,
            remedy=f"Take the layers it is made of, or "
            f"`{command('probe ...', layers=learned[0])}`.",
        )
    if not spec.by_token and len(spec.poolings) > 1:
        message = "one file holds one pooling"
        raise UsageError(
            message, remedy="Run it once for each, or use `bertctl probe` to compare them."
        )
    if len(set(encoder.sizes)) > 1:
        message = "these layers have vectors of different sizes, which do not fit into one array"
        raise UsageError(message, remedy="Run it once for each size.")
    # JSON Lines have numbers with six decimals, whatever the type, and the texts of tokens.
    is_text = job.output.suffix.lower() == ".jsonl"
    token_names: tuple[str, ...] = ()
    if is_text and spec.by_token:
        token_names = tuple(tokens_by_id(encoder.engine.tokenizer))
    return VectorLayout(
        layers=tuple(layer.name for layer in spec.layers),
        size=encoder.sizes[0],
        dtype="float32" if is_text else job.dtype,
        by_token=spec.by_token,
        pooling=f"words-{spec.words}" if spec.words else spec.poolings[0],
        token_names=token_names,
        keep_text=job.keep_text or is_text,
    )


def _settings(
    encoder: TextEncoder, job: ExtractJob, layout: VectorLayout, processes: int
) -> dict[str, Any]:
    """Returns what OUT.json says of how vectors were made, which a resumed attempt must share."""
    spec = encoder.spec
    modules = spec.sentence_modules
    prompt = {} if modules is None else {"prompt": modules.prompt()}
    return {
        "schema": SCHEMA,
        "source": job.source,
        "model": encoder.source.name,
        "model_hash": encoder.source.content_hash(),
        "layers": list(layout.layers),
        "pooling": layout.pooling,
        "special_tokens": spec.special_tokens,
        "normalize": spec.normalize,
        **prompt,
        "max_length": job.long.max_length,
        "stride": job.long.stride if job.long.mode == "window" else None,
        **job.long.fields(),  # `long_text`, unless texts are cut as usual
        "precision": encoder.engine.compute.precision,
        "backend": job.backend,
        "dtype": job.dtype,
        "keep_text": layout.keep_text,
        "processes": processes,
        "order": "as in the input",
    }


def _finish(
    job: ExtractJob, layout: VectorLayout, state: ExtractionState, workers: Workers
) -> dict[str, Any]:
    """Writes the output file and OUT.json, once all vectors are stored; deletes the stored ones.

    Only the first process writes. If several processes or shards computed the vectors, their
    stores are joined first.

    Args:
        job: Names the output, and in a merge the records of the shards.
        layout: Arrays of the file.
        state: Progress of this process.
        workers: The processes, which must have read the same input.

    Returns:
        The content of OUT.json; empty in all processes but the first.
    """
    workers.agree(state.document(complete=True)["texts_sha256"])
    if not workers.is_first:
        workers.wait()
        return {}
    progress = state.progress
    if workers.count > 1:
        records = [job.folder / f"{rank}.json" for rank in range(workers.count)]
    else:
        records = list(job.sharing.paths)  # of the shards that are merged
    if records:
        folder = job.folder / "joined"
        n_vectors = _join_parts(records, progress, layout, folder)
    else:
        folder = job.folder / "0"
        n_vectors = progress.store.get("vectors", 0)
    write_features(job.output, layout, folder)
    final = state.document(complete=True) | {"shape": [n_vectors, *layout.vector_shape]}
    if job.sharing.shard:
        final |= _rows_of_shard(progress, job.sharing.shard)
    write_json(job.sidecar, final)
    shutil.rmtree(job.folder, ignore_errors=True)
    workers.wait()
    return final


def _join_parts(
    records: Sequence[Path], progress: Progress, layout: VectorLayout, folder: Path
) -> int:
    """Joins the vectors of several processes or shards, and returns how many vectors there are.

    Args:
        records: State file of each process or shard; beside it is its folder of vectors.
        progress: Receives the sums of the counts of tokens.
        layout: Arrays of the vectors.
        folder: New folder of the joined vectors.
    """
    states = [json.loads(record.read_text(encoding="utf-8"))["progress"] for record in records]
    for name in ("truncated", "lost_tokens", "unknown_tokens", "tokens"):
        setattr(progress, name, sum(part_state[name] for part_state in states))

    # Every state lists all chunks of the input, each as (part, rows, vectors). But a state counts
    # the vectors of its own chunks only, so that number comes from the part that computed them.
    chunks_in_order = []
    for number, (part, rows, _) in enumerate(states[0]["chunks"]):
        _, _, n_vectors = states[part]["chunks"][number]
        chunks_in_order.append((part, rows, n_vectors))
    join_stores([record.with_suffix("") for record in records], chunks_in_order, folder, layout)
    return sum(part_state["store"]["vectors"] for part_state in states)


def _rows_of_shard(progress: Progress, shard: tuple[int, int]) -> dict[str, Any]:
    """Returns how many rows a shard and the input have, and the ranges of the shard's rows.

    Args:
        progress: Chunks of the input in their order, each with the number of its shard, from 0.
        shard: Number of the shard, from 1, and how many there are.
    """
    number, _ = shard
    ranges = []
    n_rows = 0
    n_input_rows = 0
    for shard_of_chunk, rows, _ in progress.chunks:
        begin = n_input_rows
        n_input_rows += rows
        if shard_of_chunk == number - 1:
            ranges.append([begin, n_input_rows])
            n_rows += rows
    return {"rows": n_rows, "rows_of_input": n_input_rows, "row_ranges": ranges}
