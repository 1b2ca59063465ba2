"""`bertctl finetune`."""

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.options import (
    AccelerateConfigOption,
    BatchSizeOption,
    CheckpointEveryOption,
    DataDirOption,
    DeterministicOption,
    DeviceOption,
    EpochsOption,
    GradientCheckpointingOption,
    KeepTextOption,
    LabelColumnOption,
    LearningRateOption,
    LogToOption,
    MaxEvalRowsOption,
    MaxLengthOption,
    MaxTrainRowsOption,
    MetricOption,
    ModelOption,
    NumProcessesOption,
    OutputOption,
    OverwriteOption,
    PairColumnOption,
    PrecisionOption,
    RecipeArgument,
    SeedOption,
    SetOption,
    TestFileOption,
    TextColumnOption,
    ThreadsOption,
    TrainFileOption,
    ValidationFileOption,
    collect,
)
from bertctl.cli.output import Output, among_workers
from bertctl.errors import UsageError

DryRunFlag = Annotated[
    bool,
    typer.Option("--dry-run", help="Do everything but the training: read, check, count steps, estimate memory."),
]

ResumeFlag = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint of the run; there must be one.")
]
ResumeIfAnyFlag = Annotated[
    bool,
    typer.Option(
        "--resume-if-any",
        help="Go on from the last checkpoint if there is one, else start: for jobs that restart.",
    ),
]
StrictFlag = Annotated[
    bool, typer.Option("--strict", help="Exit with code 6 where the model comes to answer one thing to everything.")
]


def finetune(
    out: Output,
    recipe: RecipeArgument,
    output: OutputOption = None,
    model: ModelOption = None,
    data_dir: DataDirOption = None,
    train_file: TrainFileOption = None,
    validation_file: ValidationFileOption = None,
    test_file: TestFileOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    label_column: LabelColumnOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchSizeOption = None,
    learning_rate: LearningRateOption = None,
    max_length: MaxLengthOption = None,
    seed: SeedOption = None,
    max_train_rows: MaxTrainRowsOption = None,
    max_eval_rows: MaxEvalRowsOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    keep_text: KeepTextOption = None,
    metric: MetricOption = None,
    log_to: LogToOption = None,
    sets: SetOption = None,
    overwrite: OverwriteOption = False,
    checkpoint_every: CheckpointEveryOption = None,
    resume: ResumeFlag = False,
    resume_if_any: ResumeIfAnyFlag = False,
    strict: StrictFlag = False,
    gradient_checkpointing: GradientCheckpointingOption = None,
    deterministic: DeterministicOption = None,
    num_processes: NumProcessesOption = 1,
    accelerate_config: AccelerateConfigOption = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Fine-tune an encoder on a data set or on your own files.

    RECIPE is a built-in name (`bertctl recipes ls`) or a YAML file. The best weights by the primary metric on the
    validation rows are kept; the run folder holds the model, every prediction, the metrics and the resolved recipe.

    bertctl finetune sst2 --data-dir glue --model minilm

    bertctl finetune text-classification --train-file a.csv --validation-file b.csv
    """
    from bertctl.config.load import load_recipe

    started = time.perf_counter()
    resolved = load_recipe(
        recipe,
        sets=sets or (),
        options=collect(
            model=model,
            data_dir=data_dir,
            train_file=train_file,
            validation_file=validation_file,
            test_file=test_file,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_length=max_length,
            seed=seed,
            max_train_rows=max_train_rows,
            max_eval_rows=max_eval_rows,
            device=device,
            precision=precision,
            threads=threads,
            keep_text=keep_text,
            metric=metric,
            log_to=log_to,
            checkpoint_every=checkpoint_every,
            gradient_checkpointing=gradient_checkpointing,
            deterministic=deterministic,
        ),
    )
    from bertctl.run_folder import RunFolder, default_folder

    going_on = resume or resume_if_any
    if overwrite and going_on:
        raise UsageError("--overwrite and --resume exclude each other", remedy="Leave one out.")
    if output is not None and not going_on:
        RunFolder.check_free(output, overwrite=overwrite)
    from bertctl.runtime.accelerate_config import check_environment, read_accelerate_config
    from bertctl.runtime.launch import is_worker, launch

    if accelerate_config is not None:
        read_accelerate_config(accelerate_config)
    if (num_processes > 1 or accelerate_config) and not is_worker() and not dry_run:
        raise typer.Exit(launch(sys.argv[1:], num_processes, config=accelerate_config, listener=out))

    check_environment(listener=out)

    from bertctl.training.announce import announce
    from bertctl.training.finetune import Result, run
    from bertctl.training.job import prepare
    from bertctl.training.resume import find_run

    shared, talk = among_workers(out)
    with out.third_party_kept() as log:
        job = prepare(resolved, listener=talk)
        announce(job, listener=talk)
        if dry_run:
            path = output or default_folder(job.recipe.name, job.hash)
            out.say(f"dry run: nothing was trained; the run would be in {path}")
            out.answer(_plan(job, str(path)), _plan_text(job))
            return
        found = find_run(job, output, needed=resume, listener=talk) if going_on else None
        path = found.folder.path if found else output or default_folder(job.recipe.name, job.hash)
        folder = RunFolder(Path(shared.share(str(path))))
        if shared.is_first and (found is None or not (found.finished or found.checkpoint)):
            RunFolder.create(folder.path, overwrite=overwrite or found is not None)
        shared.wait()
        talk.say(f"run folder: {folder.path}")
        if found is not None and found.finished:
            talk.say("it is finished already; these are its results")
            result = Result(folder, folder.read(folder.metrics), folder.read(folder.performance))
        else:
            with folder.held() if shared.is_first else contextlib.nullcontext():
                log.write_to(folder.log)
                checkpoint = found.checkpoint if found else None
                result = run(job, folder, resume=checkpoint, strict=strict, workers=shared, listener=talk)
    if not shared.is_first:
        return

    from bertctl.reporting.card import write_card
    from bertctl.reporting.summary import metrics_table, time_line

    write_card(folder)
    out.answer(
        {"run": str(folder.path), **result.metrics},
        metrics_table(result.metrics, dataset=job.recipe.data.name),
    )
    out.say(time_line(result.performance, total=time.perf_counter() - started))
    out.say(f"run folder: {folder.path}")


def _plan(job: Any, path: str) -> dict[str, Any]:
    """The answer of a dry run."""
    return {
        "run": path,
        "recipe": job.recipe.model_dump(),
        "compute": {
            "device": job.compute.device,
            "precision": job.compute.precision,
            "threads": job.compute.threads,
        },
        "examples": {split: len(features) for split, features in job.features.items()},
        "steps": job.steps,
        "memory_bytes": job.memory.total,
    }


def _plan_text(job: Any) -> str:
    """The resolved recipe, as `recipes show` prints it."""
    from bertctl.config.dump import dump_recipe

    text: str = dump_recipe(job.recipe, command=f"bertctl finetune {job.recipe.name}.yaml")
    return text


COMMAND = finetune
