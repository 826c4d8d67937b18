"""`python -m bench`: everything about a run but the run itself, which is `pytest bench/ --benchmark`."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

from bench.environment.dependencies import RUNNING, child_environment, refuse_if_missing

if __name__ == "__main__":
    refuse_if_missing(without=RUNNING)  # before the first import that could fail

import typer
from rich.console import Console

import kernels
from bench.device.detect import Device, DeviceError, chosen, detect, unusable_gpu
from bench.sweep import load as sweep
from bench.sweep.load import Loaded, SweepError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

imports = typer.Typer(no_args_is_help=True, help="Other people's timings as rows, marked as theirs.")
app.add_typer(imports, name="import")

DeviceOption = Annotated[
    str, typer.Option("--bench-device", help="cpu, cuda or cuda:N; default: what is here.")
]


ResultsOption = Annotated[Path | None, typer.Option(help="Folder of results; default: results/.")]


def refuse(sentence: str) -> NoReturn:
    """One sentence on standard error, exit code 2."""
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(2)


def _left_out(sentence: str) -> None:
    """A result file that cannot be read does not hide the others."""
    typer.echo(f"left out: {sentence}", err=True)


def _write(path: Path, text: str) -> None:
    """Write a file, its folder too; refuse if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        refuse(f"{path}: cannot be written: {error.strerror}")


def _seconds(budget: str | None, device: Device) -> float | None:
    from bench.runner.planner import budget_s

    try:
        return budget_s(budget, device.kind)
    except ValueError as error:
        refuse(str(error))


def _loaded(names: list[str], device: str) -> tuple[Device, list[Loaded]]:
    try:
        found = detect(device)
        paths = [path for name in names for path in sweep.select(name)] or sweep.SWEEPS
        return found, sweep.load_all(paths, kernels.problem, found.sm_count)
    except (DeviceError, SweepError) as error:
        refuse(str(error))


@app.command("list")
def list_cases(
    sweeps: Annotated[list[str] | None, typer.Argument(help="Sweeps, folders of sweeps, YAML files.")] = None,
    bench_device: DeviceOption = "auto",
    cases: Annotated[bool, typer.Option("--cases", help="Every case, not only every sweep.")] = False,
    on: Annotated[
        str,
        typer.Option(
            metavar="GPU", help="The plan for a GPU that is not here: a file of bench/device/datasheets."
        ),
    ] = "",
    bench_budget: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="The plan of a run: what it would visit in this time."),
    ] = None,
    bench_visits: Annotated[int, typer.Option(metavar="N", help="Visits of each case, for the plan.")] = 1,
) -> None:
    """The sweeps and their cases, with the least time that the device's datasheet allows; or a run's plan."""
    from bench.cli.list_cases import listing, of_datasheet, planned
    from bench.cli.predict import datasheet_named

    if on or bench_budget is not None:
        try:
            device = of_datasheet(datasheet_named(on)) if on else detect(bench_device)
            seconds = _seconds(bench_budget, device)
            # A run measures the ceilings, too, whichever sweeps are asked for.
            names = ["ceilings", *sweeps] if sweeps else []
            paths = list(dict.fromkeys(path for name in names for path in sweep.select(name)))
            loaded = sweep.load_all(paths or sweep.SWEEPS, kernels.problem, device.sm_count)
        except (DeviceError, SweepError) as error:
            refuse(str(error))
        for line in planned(device, loaded, seconds, bench_visits):
            typer.echo(line)
        return
    device, loaded = _loaded(sweeps or [], bench_device)
    for line in listing(device, loaded, cases=cases or bool(sweeps)):
        typer.echo(line)


@app.command()
def schema() -> None:
    """Write sweeps/schema.json, which gives editors completion, from the operators as they are."""
    from bench.sweep.json_schema import schema_text

    path = sweep.SWEEPS / "schema.json"
    path.write_text(schema_text([kernels.problem(name) for name in kernels.names()]))
    typer.echo(path)


@app.command()
def columns() -> None:
    """Write the columns into results/README.md."""
    from bench.runner.session import RESULTS
    from bench.store.column_docs import readme_with_columns

    path = RESULTS / "README.md"
    path.write_text(readme_with_columns(path.read_text()))
    typer.echo(path)


@app.command()
def ceilings(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")],
) -> None:
    """What the probes of each run measured, with intervals, and the calibrations that a GPU's make."""
    from bench.cli.ceilings import ceilings_lines
    from bench.store.parquet import read
    from bench.store.schema import StoreError

    try:
        for line in ceilings_lines(read(results, _left_out)):
            typer.echo(line)
    except (StoreError, ValueError) as error:
        refuse(str(error))


@app.command()
def efficiency(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")],
) -> None:
    """Of memory-bound operators: the share of a copy's bandwidth, and ours against the best library."""
    from bench.cli.run_summary import efficiency_table
    from bench.store.parquet import read
    from bench.store.schema import StoreError

    try:
        for line in efficiency_table(read(results, _left_out)):
            typer.echo(line)
    except (StoreError, ValueError) as error:
        refuse(str(error))


@app.command()
def duel(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")],
) -> None:
    """Of GEMM: ours against cuBLAS, case by case, summed up by regions of shapes beside their goals."""
    from bench.cli.run_summary import duel_table
    from bench.store.parquet import read
    from bench.store.schema import StoreError

    try:
        for line in duel_table(read(results, _left_out)):
            typer.echo(line)
    except (StoreError, ValueError) as error:
        refuse(str(error))


@imports.command("aiconfigurator")
def import_aiconfigurator(
    bench_results: ResultsOption = None,
    sample: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead: below DIR, a few hundred rows a GPU, always the same."),
    ] = None,
) -> None:
    """Public timings of bfloat16 linear layers on NVIDIA's GPUs, from the package aiconfigurator-core."""
    from bench.interop.import_aiconfigurator import Import, Package, calibration_shapes
    from bench.interop.imported_rows import ImportRefused
    from bench.runner.session import RESULTS
    from bench.store.schema import StoreError

    try:
        package, shapes = Package.installed(), calibration_shapes(kernels.problem)
        folder = sample or bench_results or RESULTS
        found = Import(package, kernels.problem, shapes, folder, sample is not None)
        for device in found.devices(lambda said: typer.echo(said, err=True)):
            typer.echo(device if device.save() else f"{device.path}: already there")
    except (ImportRefused, SweepError, StoreError, DeviceError) as error:
        refuse(str(error))


@imports.command("csv")
def import_csv(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As results/README.md describes it.")],
    bench_results: ResultsOption = None,
) -> None:
    """Anybody's own numbers from a CSV file. Nothing is written unless every line is right."""
    from bench.interop.import_csv import imported
    from bench.interop.imported_rows import ImportRefused
    from bench.runner.session import RESULTS
    from bench.store.schema import StoreError

    try:
        devices, remarks = imported(file, bench_results or RESULTS, kernels.names(), kernels.problem)
        if all(device.path.exists() for device in devices):
            refuse(f"{file}: already imported as {devices[0].path}")
        for device in devices:  # of an import that was cut short, what is missing
            typer.echo(device if device.save() else f"{device.path}: already there")
    except (ImportRefused, StoreError, DeviceError) as error:
        refuse(str(error))
    for remark in remarks:
        typer.echo(remark, err=True)


@app.command()
def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="github-action-benchmark, pytorch or otava.")],
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", metavar="FILE", help="Where to; default: standard output. otava needs a folder."),
    ] = None,
) -> None:
    """Our times as other tools read them: docs/nightly.md says what each does with them."""
    from bench.interop.export import ExportRefused, exported
    from bench.store.schema import StoreError

    try:
        for line in exported(form, results, output, _left_out, lambda said: typer.echo(said, err=True)):
            typer.echo(line, nl=False)
    except (ExportRefused, StoreError, ValueError) as error:
        refuse(str(error))


@app.command()
def predict(
    sweeps: Annotated[
        list[str] | None, typer.Argument(metavar="SWEEP...", help="As for list; default: all.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="DEVICE", help="A file of bench/device/datasheets, or a GPU's name.")
    ] = "",
    results: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="RESULT", help="Runs to predict from; default: results/. Repeatable."),
    ] = None,
    cases: Annotated[bool, typer.Option("--cases", help="Every case, not only every sweep.")] = False,
) -> None:
    """What sweeps would take on a GPU, which may not be here: three levels, what binds, and how far off."""
    from bench.cli.predict import basis, datasheet_named, prediction_lines
    from bench.model.ceilings import MixedCeilings
    from bench.model.scale_to_device import TransferError
    from bench.runner.session import RESULTS
    from bench.store.schema import StoreError

    try:
        if not on:
            raise DeviceError("--on DEVICE is needed: whose launches are to be predicted, say b200")
        wanted = datasheet_named(on)
        paths = [path for name in sweeps or [] for path in sweep.select(name)] or sweep.SWEEPS
        loaded = sweep.load_all(paths, kernels.problem, wanted.sm_count)
        for line in prediction_lines(basis(wanted, results or [RESULTS], _left_out), loaded, cases):
            typer.echo(line)
    except (DeviceError, SweepError, StoreError, MixedCeilings, TransferError) as error:
        refuse(str(error))


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="A parquet file, or a folder of them.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The same, of what came after.")],
    across: Annotated[
        list[str] | None,
        typer.Option(metavar="FACT", help="What may differ: device, driver ... Repeatable."),
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all", help="Every case, not only those that changed.")
    ] = False,
) -> None:
    """Two runs, case by case: SLOWER, FASTER, SAME, UNSURE, INVALID, NOT COMPARABLE, NEW, GONE.

    Exit code 1: some case is SLOWER, whatever else there is. 2: some row is INVALID, or the input is bad.
    3: nothing could be compared. 0: none of these.
    """
    from bench.cli.compare import comparison_lines
    from bench.judge.compare import compare as compared
    from bench.store.parquet import read
    from bench.store.schema import StoreError

    try:
        found = compared(read([before], _left_out), read([after], _left_out), across or [])
    except (StoreError, ValueError) as error:
        refuse(str(error))
    for line in comparison_lines(found, all_cases):
        typer.echo(line)
    raise typer.Exit(found.exit_code)


@app.command()
def explain(
    case: Annotated[str, typer.Argument(metavar="CASE", help="The name of a case, as commands print it.")],
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A parquet file, or a folder of them.")],
) -> None:
    """One case: what it is, what was predicted and why, what was measured, and how to measure it again."""
    from bench.cli.explain import explanation
    from bench.errors import UserError
    from bench.store.schema import StoreError

    def title(name: str) -> str | None:
        if name not in sweep.names():
            return None
        return sweep.load_all(sweep.select(name), kernels.problem, sm_count=1)[0].sweep.title

    try:
        for line in explanation(case, result, kernels.problem, title, _left_out):
            typer.echo(line)
    except (UserError, SweepError, StoreError) as error:
        refuse(str(error))


@app.command()
def nightly(
    bench_results: ResultsOption = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="More nights of before, as results/ holds them.")
    ] = None,
    bench_device: Annotated[
        str, typer.Option("--bench-device", help="cpu, cuda, cuda:N or all (GPUs); default: what is here.")
    ] = "auto",
    bench_sweep: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this sweep; repeatable.")
    ] = None,
    bench_case: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only the case of this name; repeatable.")
    ] = None,
    bench_budget: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Wall time of the measuring, as for pytest.")
    ] = None,
    bench_visits: Annotated[int, typer.Option(metavar="N", help="Visits of each case.")] = 3,
    bench_shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="The I-th of N parts of the cases: for array jobs.")
    ] = None,
    bench_concurrent: Annotated[
        bool, typer.Option("--bench-concurrent", help="Time all GPUs at the same time.")
    ] = False,
    bench_resume: Annotated[
        bool, typer.Option("--bench-resume", help="Go on with a night that was cut short.")
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page, also as this Markdown file.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="The same as JSON, with every detail.")
    ] = None,
) -> None:
    """One night: measure this machine, hold it against the nights before, say what changed.

    Exit code 0: nothing got slower. 1: something did, or no longer works. 2: nothing could be compared, the
    machine is not fit, or the input is bad. 3: the run broke.
    """
    from bench.nightly.night import night, worst
    from bench.nightly.report import nightly_json, nightly_lines
    from bench.runner.session import RESULTS
    from bench.store.schema import StoreError

    refuse_if_missing()
    given = {"--bench-budget": bench_budget, "--bench-shard": bench_shard, "--bench-visits": bench_visits}
    options = ["--bench-device", bench_device]
    options += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    options += [word for name in bench_sweep or [] for word in ("--bench-sweep", name)]
    options += [word for name in bench_case or [] for word in ("--bench-case", name)]
    options += ["--bench-concurrent"] * bench_concurrent + ["--bench-resume"] * bench_resume
    results = (bench_results or RESULTS).absolute()
    if baseline is not None and not baseline.is_dir():
        refuse(f"--baseline {baseline}: no such folder; give one that holds result files, or leave it out")
    try:
        nights = night(chosen(bench_device), results, baseline, options, typer.echo)
    except (DeviceError, StoreError) as error:
        refuse(str(error))
    code = worst(one.exit_code for one in nights)
    page = "\n".join(nightly_lines(nights))
    typer.echo(f"\n{page}")
    for path, text in ((summary, page), (json_file, nightly_json(nights, code))):
        if path is not None:
            _write(path, text)
    raise typer.Exit(code)


@app.command()
def coverage(
    repetitions: Annotated[int, typer.Option(help="Simulated runs for each kind of kernel.")] = 120,
) -> None:
    """How often intervals cover the truth, ours beside other tools' rules: simulated, a minute on one core.

    `error` is the distance from a launch's true time, its median and its 95th percentile. `either`: the
    interval covers the truth, or a flag is raised. Truth is defined in bench/validation/interval_coverage.py.
    """
    from bench.validation.interval_coverage import SEED, coverage_lines, scores

    if repetitions < 1:
        refuse(f"--repetitions {repetitions}: give a whole number, 1 or more")
    for line in coverage_lines(scores(repetitions, SEED), repetitions, SEED):
        typer.echo(line)


@app.command()
def instruments(bench_device: DeviceOption = "auto") -> None:
    """Our clocks beside independent ones: the same launches, in turns where they can share a process."""
    from bench.device.lock import DeviceBusy, device_lock
    from bench.runner.worker_process import device_environment
    from bench.validation.clock_agreement import WIDTH, compare_instruments

    refuse_if_missing()
    try:
        device = detect(bench_device)
        with device_lock(device.uuid, str(device), "comparing instruments") as unlocked:
            if unlocked:
                typer.echo(unlocked, err=True)
            settings = {
                "kind": device.kind,
                "cache_byte": device.cache_byte,
                "uuid": device.uuid,
                "threads": device.sm_count if device.kind == "cpu" else 1,
                "name": str(device) if device.kind == "cuda" else f"{device.name}, {device.sm_count} cores",
            }
            environment = device_environment(device.kind, device.uuid or None)
            code = compare_instruments(settings, environment, Console(width=WIDTH))
    except (DeviceError, DeviceBusy) as error:
        refuse(str(error))
    raise typer.Exit(code)


@app.command("first-minutes")
def first_minutes(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="BLOCK...", help="Which; all for every block. None: the plan."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for result files, summary and logs; default: results/first-minutes."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Fit these blocks into so many minutes.")
    ] = None,
) -> None:
    """The first minutes on a GPU: blocks of commands, each a question, one after the other; a table last.

    Exit code 0: every command did its work, whatever it found. 1: some failed or were stopped. On a CPU the
    same blocks are rehearsed.
    """
    from bench.first_minutes.blocks import UnknownBlock, blocks, chosen
    from bench.first_minutes.running import plan_lines, session
    from bench.runner.session import RESULTS

    refuse_if_missing()
    if minutes is not None and not minutes > 0:
        refuse(f"--minutes {minutes:g}: give a number of minutes, more than 0")
    try:
        device = detect()
        there = blocks()
        if not names:
            for line in plan_lines(there, str(device)):
                typer.echo(line)
            return
        out = out or RESULTS / "first-minutes"
        ran = session(chosen(names, there), device, out, minutes, typer.echo)
    except (DeviceError, UnknownBlock) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out {out}: {error.strerror}")
    raise typer.Exit(0 if all(one.is_fine for one in ran) else 1)


@app.command()
def doctor(
    bench_device: DeviceOption = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Only the part that takes three seconds.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Versions, every number, whole tracebacks.")
    ] = None,
) -> None:
    """What of a run works on this machine, within a minute: a line each, PASS, WARN or FAIL with a remedy.

    Exit code 0: healthy. 1: degraded, some line is WARN. 2: unusable, some line is FAIL; or the command was
    misspelt or the device is in use, which is then said in a line that begins with `error:`.
    """
    from bench.device.lock import DeviceBusy, device_lock
    from bench.doctor.command import report, run
    from bench.doctor.groups import Outcome

    begin = time.perf_counter()
    try:
        if json_file is not None:
            _write(json_file, "")  # a minute later it would be a pity
        device = detect(bench_device)
        unusable = unusable_gpu() if device.kind == "cpu" and bench_device == "auto" else ""
        with device_lock(device.uuid, str(device), "the doctor") as unlocked:
            if unlocked:
                typer.echo(unlocked, err=True)

            def keep(outcomes: list[Outcome]) -> None:
                if json_file is not None:
                    _write(json_file, report(device, quick, outcomes, time.perf_counter() - begin))

            code = run(device, unusable, quick, Console(), keep)
        typer.echo(f"{time.perf_counter() - begin:.0f} s")
    except (DeviceError, DeviceBusy) as error:
        refuse(str(error))
    raise typer.Exit(code)


@app.command("self")
def self_measurement() -> None:
    """What the harness itself costs: listing, collecting 5,000 cases, memory, and the parent a visit."""
    refuse_if_missing()
    root, environment = Path(__file__).parents[1], child_environment()
    begin = time.perf_counter()
    listed = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bench", "list"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    torch = "imports" if " torch\n" in listed.stderr else "never imports"
    typer.echo(f"python -m bench list: {time.perf_counter() - begin:.2f} s; it {torch} torch")
    from bench.cli.list_cases import five_thousand_cases

    begin = time.perf_counter()
    collected = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "bench/", "--benchmark", "--collect-only", "-q"),
            *("--bench-sweep", str(five_thousand_cases())),
        ],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    said = collected.stdout.strip().splitlines()[-1]
    typer.echo(f"pytest collecting 5,000 cases: {time.perf_counter() - begin:.2f} s ({said})")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    typer.echo(f"largest memory of the two: {peak:.0f} MB")
    from bench.runner.worker_process import WorkerDied
    from bench.validation.harness_overhead import overhead

    try:
        for line in overhead(kernels.problem):
            typer.echo(line)
    except WorkerDied as death:
        refuse(f"the parent's cost cannot be measured: {death}")


if __name__ == "__main__":
    app()
