"""Commands that read or write result files: `python -m bench ceilings`, `compare`, `export`, `import` ..."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

import kernels
from bench.cli.ab import BudgetOption
from bench.cli.application import Results, ResultsOption, left_out, remark, result_files, show
from bench.errors import UserError
from bench.format import count_text, memory_text


def columns() -> None:
    """Write the columns into results/README.md."""
    from bench.runner.session import RESULTS
    from bench.store.schema import readme_with_columns

    path = RESULTS / "README.md"
    path.write_text(readme_with_columns(path.read_text()))
    typer.echo(path)


def ceilings(results: Results) -> None:
    """What the probes of each run measured, with intervals, and the calibrations made from a GPU's probes."""
    from bench.cli.standings import ceilings_lines
    from bench.judge.frame import read

    show(ceilings_lines(read(results, left_out)))


def every_case(results: Results) -> None:
    """Every case of each run: time, 95 % interval, rate, share of the roof, what bounds it, flags."""
    from bench.cli.run_summary import case_table
    from bench.judge.frame import read

    for run in read(results, left_out):
        show([f"{run.device} {run.name}", *case_table(run.rows).splitlines()])


def efficiency(results: Results) -> None:
    """Memory-bound operators: their share of a copy's bandwidth, and our kernels against the best library."""
    from bench.cli.standings import efficiency_table
    from bench.judge.frame import read

    show(efficiency_table(read(results, left_out)))


def duel(results: Results) -> None:
    """GEMM: our kernels against cuBLAS, case by case and by region of shapes, with their goals."""
    from bench.cli.standings import duel_table
    from bench.judge.frame import read

    show(duel_table(read(results, left_out)))


def goals(
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RESULT...]", help="Parquet files, or folders; none: no verdict."),
    ] = None,
    operator: Annotated[str | None, typer.Option(help="Only those of this operator.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The goals as Markdown, with reasons.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every goal, also those without a case, and every reason.")
    ] = False,
) -> None:
    """The goals of our kernels: what they rest on, what would refute them, and what results say of each."""
    from bench.cli.standings import goal_lines, markdown_lines, of_operator, outcome_lines, summary_lines
    from bench.judge.frame import read

    about = of_operator(operator)
    if markdown:
        show(markdown_lines(about))
    elif not results:
        show(goal_lines(about) if every or operator else summary_lines(about))
    else:
        show(outcome_lines(read(results, left_out), about, every))


def compare(
    results: Annotated[list[Path], typer.Argument(metavar="A B...", help="Parquet files, or folders.")],
    across: Annotated[
        list[str] | None, typer.Option(metavar="FACT", help="What may differ: device, driver ... Repeatable.")
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all", help="Every case and fact, not only those that changed.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Measure what is UNSURE again, interleaving both commits.")
    ] = False,
    bench_budget: BudgetOption = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="With --across device: the report as Markdown.")
    ] = False,
) -> None:
    """Two runs, case by case: SLOWER, FASTER, SAME, UNSURE, INVALID, NOT COMPARABLE, NEW, GONE.

    With --across device: what each device gains over the first one, by operator and what bounds a case; there
    may be more than two results.

    Exit code 1: a case, an operator or the machine is SLOWER, whatever else there is. 2: some row is INVALID,
    or the input is bad. 3: nothing was decided, or no two devices have a case in common. 0: none of these.
    """
    from bench.cli.across import Across
    from bench.cli.compare import again as measured_again
    from bench.cli.compare import comparison_lines, next_lines
    from bench.judge.comparability import waved
    from bench.judge.compare import compare as compared
    from bench.judge.frame import read

    across = across or []
    waved(across)  # refuses what is no fact
    of_devices = "device" in across
    if markdown and not of_devices:
        raise UserError("--markdown: only the report of --across device can be Markdown")
    if again and of_devices:
        raise UserError("--again: two devices cannot be interleaved; leave out --across device")
    case_by_case = all_cases or not of_devices
    results = result_files(results)
    if case_by_case and len(results) != 2:
        more = "leave out --all" if of_devices else "add --across device"
        hint = f"; to see what each of several devices gains, {more}" if len(results) > 2 else ", A and B"
        raise UserError(f"compare: give two results, not {len(results)}{hint}")
    code = 0
    if case_by_case:
        before, after = (read([result], left_out) for result in results)
        comparison = compared(before, after, across)
        show(comparison_lines(comparison, all_cases))
        rows = (row for run in (*before, *after) for row in run.rows if row.device_kind == "cuda")
        if (units := len({row.device_id for row in rows})) > 2:
            named = " ".join(map(str, results))
            remark(f"these are {units} units: `python -m bench fleet {named}` says which of them is slow")
        if again:
            code = measured_again(comparison, results, bench_budget)
        else:
            show(() if all_cases else next_lines(comparison, results))
            code = comparison.exit_code
    if of_devices:
        devices = Across.read(results, left_out)
        show(devices.lines(markdown))
        code = 0 if devices.gains else 3
    raise typer.Exit(code)


def claims(
    results: Results,
    rule: Annotated[
        int | None, typer.Option(metavar="N", help="Only claims that speak to this rule.")
    ] = None,
    all_claims: Annotated[
        bool, typer.Option("--all", help="A line for every claim and device, with every number and reason.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown.")] = False,
    by_rule: Annotated[
        bool, typer.Option("--rules", help="A line for each of the guides' rules, as Markdown.")
    ] = False,
    by_experiment: Annotated[
        bool, typer.Option("--experiments", help="A line for each of the guides' experiments, as Markdown.")
    ] = False,
    expect: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Exit code 1 if a verdict is not the one in FILE, from --json."),
    ] = None,
) -> None:
    """What the documents claim, judged by rows: SUPPORTED, CONTRADICTED, UNDECIDED ...

    Exit code 1: with --expect, some verdict is another one. 2: the input is bad. 0: neither.
    """
    from bench.cli import claims as verdicts
    from bench.judge.frame import read

    if as_json + by_rule + by_experiment > 1:
        raise UserError("--json lists claims, --rules rules and --experiments experiments: give one of them")
    verdicts.chosen([], rule)  # refuses what is no rule before judging, which takes long
    wanted = verdicts.from_json(expect, "--expect ") if expect is not None else None
    every = verdicts.verdicts(results, kernels.problem, left_out, remark)
    judged = verdicts.chosen(every, rule)
    if as_json:
        typer.echo(verdicts.as_json(judged))
    elif by_rule or by_experiment or markdown or all_claims:
        by: verdicts.By = "rule" if by_rule else "experiment" if by_experiment else "claim"
        show(verdicts.claim_lines(judged, rule, markdown, by))
    else:
        show(verdicts.decided_lines(judged, rule))
        show(verdicts.next_lines(judged, read(results)))
    if wanted is not None:
        sentences = list(verdicts.differing(every, wanted))
        for sentence in sentences:
            remark(sentence)
        raise typer.Exit(1 if sentences else 0)


def explain(
    case: Annotated[str, typer.Argument(metavar="CASE", help="The name of a case, as commands print it.")],
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A parquet file, or a folder of them.")],
    others: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="RESULT", help="Other GPUs' timings to predict by. Repeatable."),
    ] = None,
) -> None:
    """One case: what it is, what was predicted and why, what was measured, and how to measure it again."""
    from bench.cli.explain import explanation

    show(explanation(case, result, others or ()))


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="github-action-benchmark or openmetrics.")],
    results: Results,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="Where to; default: standard output.")
    ] = None,
) -> None:
    """Our times as other tools read them: docs/nightly.md says what each does with them."""
    from bench.interop.export import exported

    for line in exported(form, results, output, left_out, remark):
        typer.echo(line, nl=False)


def pack(
    results: Results,
    output: Annotated[
        Path, typer.Option("-o", metavar="DIR", help="Where the packs go: DIR/<device>/2026-11.parquet.")
    ],
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Delete the files that are in a pack, once it has been read back."),
    ] = False,
) -> None:
    """Months that are over: all runs of a device in one file; docs/queries.md says what it keeps."""
    show(_pack_lines(results, output, remove))


def _pack_lines(results: Sequence[Path], folder: Path, removing: bool) -> Iterator[str]:
    """Pack these results below `folder`; a line for each pack that holds some of them.

    UserError if the folder is one of those that are packed, or in it: whoever reads that would find every run
    twice.
    """
    from bench.store.pack import pack, remove

    into = folder.resolve()
    for root in results:
        if root.resolve() in (into, *into.parents):
            raise UserError(
                f"-o {folder}: is inside {root}, where every run would then be found twice; "
                "give a folder outside of it"
            )
    any_pack = False
    for packed in pack(results, folder, left_out):
        any_pack = True
        files = count_text(len(packed.originals), "file")
        if packed.packed_byte:
            sizes = f"{memory_text(packed.byte)} in {memory_text(packed.packed_byte)}"
            line = f"{packed.path}: {files}, {sizes}"
        else:
            line = f"{packed.path}: held {files} of these already"
        if removing:
            line += f"; removed {count_text(sum(1 for _ in remove(packed)), 'original')}"
        yield line
    if not any_pack:
        yield "nothing to pack"


def import_csv(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As results/README.md describes it.")],
    bench_results: ResultsOption = None,
    new_device: Annotated[
        bool, typer.Option("--new-device", help="A device whose name is nearly a known one is another.")
    ] = False,
) -> None:
    """Anybody's own numbers from a CSV file. Nothing is written unless every line is right."""
    from bench.interop.import_csv import imported
    from bench.runner.session import RESULTS

    devices, remarks = imported(file, bench_results or RESULTS, kernels.names(), kernels.problem, new_device)
    if all(device.path.exists() for device in devices):
        raise UserError(f"{file}: already imported as {devices[0].path}")
    for device in devices:  # the files that are missing after an interrupted import
        typer.echo(device if device.save() else f"{device.path}: already there")
    typer.echo(f"now: python -m plots {' '.join(str(device.path) for device in devices)}")
    for sentence in remarks:
        remark(sentence)
