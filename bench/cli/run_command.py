"""`python -m bench run OPERATOR NAME=VALUES...`: measure an operator at sizes given on the command line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import yaml

import kernels
from bench.case_name import row_name
from bench.cli.application import DeviceOption, PrecisionOption, ResultsOption, WallTimeOption
from bench.errors import UserError, unknown
from bench.spec import ASKED_DATA, DeviceKind, Problem, is_custom
from bench.sweep.load import Find, load

if TYPE_CHECKING:
    from bench.device.detect import Device
    from bench.runner.run import RunResult
    from bench.sweep.load import Case

_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)(?::([0-9]+))?")
ImplementationOption = Annotated[
    str,
    typer.Option(
        metavar="NAME,...",
        help="Only these; default: all but gemm's held to one tile; with --kernel the library and ours.",
    ),
]
KernelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel",
        metavar="FILE:FUNCTION",
        help="A kernel of your own, checked and timed with the others; repeatable.",
    ),
]

ShapesOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A CSV of sizes, a line each; its columns are parameters: m,n,k."),
]
ShowInputsOption = Annotated[
    bool, typer.Option("--show-inputs", help="Print a file with a kernel to begin with, and measure nothing.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="Launch one case once, in this process: for a profiler.")
]
DataOption = Annotated[
    str,
    typer.Option(metavar="|".join(ASKED_DATA), help="What inputs are: a GPU's power and clock depend on it."),
]


def run(
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR|CASE",
            help="A folder of kernels/, such as gemm; with --once also the name of a case.",
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUES...",
            help="Parameters: n=64, n=64..4096 (doubling), n=64..512:8 (in steps of 8), layout=NN,TN; "
            "m=n=k=64..4096 moves several together.",
        ),
    ] = None,
    shapes: ShapesOption = None,
    implementation: ImplementationOption = "",
    kernel: KernelOption = None,
    show_inputs: ShowInputsOption = False,
    once: OnceOption = False,
    cache: Annotated[str, typer.Option(metavar="cold|warm", help="Where a launch finds its data.")] = "cold",
    data: DataOption = "uniform",
    bench_device: DeviceOption = "auto",
    bench_budget: WallTimeOption = None,
    bench_precision: PrecisionOption = None,
    bench_results: ResultsOption = None,
) -> None:
    """Measure an operator at sizes given here, without a sweep; then as any run: rows, flags, figures.

    Words that are not given (dtype, direction) are the operator's first, dtype float32 on a CPU. A --kernel
    takes the operator's input tensors and returns its output, or fills the one it is given as `out`.

    Exit code 2: bad input, a kernel that is wrong or does not work when it is timed, whatever stands beside
    it, or nothing of it can run here. 3: no case got a time, or one is above the roof that bounds it.
    """
    from bench.cli.one_launch import launch_once
    from bench.cli.whole_run import measure
    from bench.device.detect import detect
    from bench.runner.custom_kernel import Untimed
    from bench.runner.options import Options
    from bench.runner.run import RESULTS

    words = [operator, *(given or [])]
    if once and data != "uniform":
        raise UserError(f"run --once: launches with uniform inputs; --data {data} is for what is timed")
    if once:
        launch_once(words, implementation, kernel or [], cache, bench_device)
        return
    device = detect(bench_device)
    find, sweep = requested("run", words, device, implementation, kernel or [], cache, shapes)
    if show_inputs:
        typer.echo(_file_to_begin_with(sweep, device), nl=False)
        return
    with sweep_file("run", sweep) as path:
        options = Options(
            device=bench_device,
            sweeps=[str(path)],
            budget=bench_budget,
            precision=bench_precision,
            data=data,
            results=(bench_results or RESULTS).absolute(),
        )
        try:
            result = measure(options, find)
        except Untimed as reason:
            typer.echo(str(reason))
            return
    if code := _exit_code(result):
        raise typer.Exit(code)


def _exit_code(result: RunResult) -> int:
    """What `run` ends with; says which rows are above their roof."""
    from bench.judge.flags import INVALID
    from bench.judge.read_runs import runs

    asked = [row for row in result.rows if row.role == "measurement"]
    if result.reason or any(row.status in INVALID for row in asked):
        return 2
    judged = [(run, row) for run in runs(result.rows, without_mixed=True) for row in run.rows]
    timed = [(run, row) for run, row in judged if row.is_timed and row.role == "measurement"]
    above = [row_name(row) for run, row in timed if run.surely_above_roof(row)]
    if above:
        typer.echo(f"no number for a verdict: {', '.join(above)} above the roof that bounds it")
    return 3 if above or not timed else 0


def requested(
    command: str,
    words: Sequence[str],
    device: Device,
    implementation: str = "",
    kernel: Sequence[str] = (),
    cache: str = "cold",
    shapes: Path | None = None,
) -> tuple[Find, dict[str, Any]]:
    """What finds the operator of OPERATOR NAME=VALUES..., and the sweep that these words ask for. UserError.

    `shapes` is a CSV file of sizes, for each of which the words hold.
    With custom kernels the implementations are these and the ones given, by default the library and ours.
    """
    from bench.runner.custom_kernel import compared, kernel_of, with_kernels

    operator, *given = words
    if operator not in kernels.names():
        raise UserError(f"{command} {operator}: {unknown('operator', operator, 'kernels/', kernels.names())}")
    kind = kernels.problem(operator)
    listed: list[dict[str, list[Any]]] = []
    if shapes:
        given, listed = _shapes(shapes, kind, given, device.kind)
    else:
        given += usual_words(operator, given, device.kind)
    if kernel:
        others = implementation.split(",") if implementation else compared(kind, device.kind)
        implementation = ",".join([*(kernel_of(text, kind).name for text in kernel), *others])
    find = with_kernels(kernels.problem, operator, kernel)
    return find, sweep_of(operator, given, implementation, cache, listed)


def _shapes(
    file: Path, kind: type[Problem], given: Sequence[str], device: DeviceKind
) -> tuple[list[str], list[dict[str, list[Any]]]]:
    """(the words that hold for every size of a CSV file, these sizes as blocks of a sweep).

    UserError names the line.
    """
    from bench.interop.file_format import cells_of, value
    from bench.interop.imported_rows import problem_from

    names, lines = cells_of(file)
    for name in names:
        if name not in kind.model_fields:
            raise UserError(f"{file}:1: {unknown('parameter', name, kind.operator, kind.model_fields)}")
    words = [*given, *usual_words(kind.operator, [*given, *(f"{name}=" for name in names)], device)]
    parsed = [(parts, values[0]) for parts, values in map(_parameter, words)]
    firsts = _firsts({parts: [first] for parts, first in parsed})
    if again := [name for name in names if name in firsts]:
        raise UserError(f"{file}:1: {again[0]} is given as {again[0]}={firsts[again[0]]}, too")
    shapes: dict[int, dict[str, Any]] = {}
    for number, cells in lines:
        shape = {name: value(cell) for name, cell in zip(names, cells, strict=True) if cell}
        problem = problem_from(kind, firsts | shape)
        if isinstance(problem, str):
            raise UserError(f"{file}:{number}, with {' '.join(words) or 'no words'}: {problem}")
        if shape in shapes.values():
            raise UserError(f"{file}:{number}: the same size as in a line above")
        shapes[number] = shape
    if not shapes:
        raise UserError(f"{file}: has no line below its first")
    return words, [{name: [size] for name, size in shape.items()} for shape in shapes.values()]


def cases_of(command: str, words: Sequence[str], device: Device, **more: Any) -> list[Case]:
    """The cases of `requested` by these words; with a custom kernel those of it alone. UserError."""
    find, sweep = requested(command, words, device, **more)
    with sweep_file(command, sweep) as path:
        cases = load(path, find, device.sm_count).cases
    return [case for case in cases if is_custom(case.implementation)] if more.get("kernel") else cases


def usual_words(operator: str, given: Sequence[str], device: DeviceKind) -> list[str]:
    """`NAME=WORD` for each parameter that is a word, needs to be set and is not: the operator's first.

    Of the data types float32 on a CPU, float16 on a GPU, if the operator has it.
    """
    kind = kernels.problem(operator)
    named = {name for word in given for name in word.rpartition("=")[0].split("=")}
    matches = []
    for name, field in kind.model_fields.items():
        words = kind.dtypes() if name == "dtype" else get_args(field.annotation)
        if name not in named and field.is_required() and words and isinstance(words[0], str):
            usual = "float16" if device == "cuda" else "float32"
            matches.append(f"{name}={usual if name == 'dtype' and usual in words else words[0]}")
    return matches


def _file_to_begin_with(sweep: dict[str, Any], device: Device) -> str:
    """A file with a kernel that is right at the first size of this sweep, or near it. UserError."""
    from bench.runner.supervisor import WorkerSupervisor

    operator, block = sweep["operator"], sweep["cases"][0]
    given = _firsts(block)
    with closing(WorkerSupervisor(device)) as worker:
        answer = worker.ask({"do": "example_file", "operator": operator, "given": given})
    if "text" not in answer:
        raise UserError(f"run {operator} --show-inputs: {answer['reason']}")
    return str(answer["text"])


def _firsts(block: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The first value of each parameter of a block of a sweep, and of a range its begin."""
    firsts = {name: values[0] for key, values in block.items() for name in key.split("=")}
    return {name: first["from"] if isinstance(first, dict) else first for name, first in firsts.items()}


@contextmanager
def sweep_file(command: str, sweep: dict[str, Any]) -> Iterator[Path]:
    """A file of this sweep for a while; UserErrors about it name the command instead of the file."""
    operator = sweep["operator"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{operator}.yaml"
        path.write_text(yaml.safe_dump(sweep, sort_keys=False))
        try:
            yield path
        except UserError as error:
            place = re.compile(rf"{re.escape(str(path))}(:[0-9]+)?: ")
            raise UserError(f"{command} {operator}: {place.sub('', str(error))}") from error


def sweep_of(
    operator: str,
    given: list[str],
    implementation: str,
    cache: str,
    shapes: Sequence[dict[str, list[Any]]] = (),
) -> dict[str, Any]:
    """The sweep that these words ask for, as its file would have it. UserError for a word that is none."""
    block: dict[str, list[Any]] = {}
    for word in given:
        name, values = _parameter(word)
        if name in block:
            raise UserError(f"{word}: {name} is given twice; give {name}=FIRST,SECOND")
        block[name] = values
    # The plot runs along a range or numbers of which there are several.
    along = [n for n, of in block.items() if isinstance(of[0], dict) or (isinstance(of[0], int) and of[1:])]
    sweep: dict[str, Any] = {
        "title": f"{operator}, as asked on the command line",
        "source": {"document": "none", "range": "ours"},
        "operator": operator,
    }
    if implementation:
        sweep["implementations"] = implementation.split(",")
    # Copies: of one list twice YAML makes an alias.
    blocks = [{name: [*values] for name, values in (block | shape).items()} for shape in shapes or [{}]]
    sweep |= {"cache": cache, "cases": blocks}
    if along:
        sweep["plot"] = {"x": along[0].split("=")[0], "y": "median_s", "log": ["x", "y"]}
    return sweep


def _parameter(word: str) -> tuple[str, list[Any]]:
    name, equals, values = word.rpartition("=")
    if not equals or not name or not values:
        what = "NAME=VALUES, such as n=64..4096, layout=NN,TN or m=n=k=512"
        raise UserError(f"{word}: give {what}; a list of sizes: --shapes FILE")
    return name, [_value(text, word) for text in values.split(",")]


def _value(text: str, word: str) -> Any:
    from bench.interop.file_format import value

    if ".." not in text:
        return value(text)
    if (match := _RANGE.fullmatch(text)) is None:
        raise UserError(f"{word}: {text} is no range; give 64..4096, which doubles, or 64..512:8")
    start, end, step = match.groups()
    how = {"step": int(step)} if step else {"factor": 2}
    return {"from": int(start), "to": int(end), **how}
