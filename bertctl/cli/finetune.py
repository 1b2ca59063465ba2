"""`bertctl finetune`."""

import time
from typing import Annotated, Any

import typer

from bertctl.cli.options import (
    BatchSizeOption,
    DataDirOption,
    DeviceOption,
    EpochsOption,
    KeepTextOption,
    LabelColumnOption,
    LearningRateOption,
    LogToOption,
    MaxEvalRowsOption,
    MaxLengthOption,
    MaxTrainRowsOption,
    MetricOption,
    ModelOption,
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
from bertctl.cli.output import Output

DryRunFlag = Annotated[
    bool,
    typer.Option("--dry-run", help="Do everything but the training: read, check, count steps, estimate memory."),
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
        ),
    )
    from bertctl.run_folder import RunFolder, default_folder

    if output is not None:
        RunFolder.check_free(output, overwrite=overwrite)

    from bertctl.training.announce import announce
    from bertctl.training.finetune import prepare, run

    with out.third_party_kept() as log:
        job = prepare(resolved, listener=out)
        announce(job, listener=out)
        path = output or default_folder(job.recipe.name, job.hash)
        if dry_run:
            out.say(f"dry run: nothing was trained; the run would be in {path}")
            out.answer(_plan(job, str(path)), _plan_text(job))
            return
        folder = RunFolder.create(path, overwrite=overwrite)
        log.write_to(folder.log)
        out.say(f"run folder: {folder.path}")
        result = run(job, folder, listener=out)

    from bertctl.reporting.summary import metrics_table, time_line

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
