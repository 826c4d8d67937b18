"""`python -m bench new operator|sweep|gpu NAME`: files that pass all tests, and what to fill in."""

from __future__ import annotations

import keyword
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

import kernels
from bench import spec
from bench.cli.application import show
from bench.device.datasheet import FILES, Datasheet, Rate, datasheets, derive_datasheet
from bench.device.detect import detect
from bench.environment.dependencies import ROOT, demand
from bench.errors import UserError, unknown
from bench.sweep import load as sweeps
from bench.sweep.grammar import whole_numbers

PLACE = "Fill in: "
"""Begins the comments of the templates above what is to be replaced."""
SIZES = (1, 2, 4, 8)
"""A new sweep's sizes, as multiples of the smallest size that the operator's other sweeps measure."""
ANY_SM_COUNT = 132
"""Sweeps whose sizes depend on the device are read as for an H100, and only for their smallest case."""
UNITS = {"matrix": tuple(spec.ITEM_BYTE), "vector": ("float16", "bfloat16", "float32", "float64")}
"""The rates that a new datasheet names: without an entry a device has no such units."""

new = typer.Typer(
    no_args_is_help=True, help="Files for a new operator, sweep or GPU, and what to fill in there."
)


@new.command()
def operator(name: Annotated[str, typer.Argument(help="Folder in kernels/, such as rmsnorm.")]) -> None:
    """Write an operator that runs and is right, its test, and a sweep that measures it."""
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UserError(f"new operator {name}: give lower-case letters, digits and _, such as rms_norm")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or hasattr(spec, class_name):
        raise UserError(f"new operator {name}: Python or bench/spec.py has this name already; give another")
    test = ROOT / "tests" / "kernels" / f"test_{name}.py"
    folder = ROOT / "kernels" / name
    refuse_taken(f"new operator {name}", folder, folder.with_suffix(".py"), ROOT / "sweeps" / name, test)
    facts = {"name": name, "class": class_name, "title": name.replace("_", " ").capitalize()}
    block = {"dtype": ["float32"], "length": 1024, "rows": [256, 1024, 4096, 16384]}
    measured: dict[str, Any] = {"title": f"{facts['title']}, growing number of rows", "operator": name}
    measured |= {"implementations": ["aten"], "block": flow(block), "x": "rows", "with_operator": True}
    write_new(
        {
            folder / "__init__.py": rendered("operator_package.py.j2", facts),
            folder / "problem.py": rendered("operator_problem.py.j2", facts),
            folder / "operator.py": rendered("operator.py.j2", facts),
            test: rendered("operator_test.py.j2", facts),
            ROOT / "sweeps" / name / "rows.yaml": rendered("sweep.yaml.j2", measured),
        }
    )
    run = f"run:     python -m bench run {name} rows=256..16384 length=1024 dtype=float32"
    show([run, f"check:   pytest bench -k {name}; pytest tests/kernels/test_{name}.py"])


@new.command()
def sweep(
    name: Annotated[str, typer.Argument(metavar="OPERATOR/NAME", help="File in sweeps/, such as gemm/tall.")],
) -> None:
    """Write a sweep of an operator, with a few of the smallest sizes that its other sweeps measure."""
    kind_name, slash, rest = name.partition("/")
    if not slash or not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", rest):
        raise UserError(
            f"new sweep {name}: give OPERATOR/NAME, in lower-case letters, digits and _, such as gemm/tall"
        )
    if kind_name not in kernels.names():
        raise UserError(f"new sweep {name}: {unknown('operator', kind_name, 'kernels/', kernels.names())}")
    path = ROOT / "sweeps" / f"{name}.yaml"
    refuse_taken(f"new sweep {name}", path, path.with_suffix(""))
    case, implementations = smallest_case(kind_name)
    block: dict[str, Any] = case.problem.parameters()
    x = next((each for each in whole_numbers(type(case.problem)) if block.get(each)), "")
    if x:
        block[x] = [size for size in (times * block[x] for times in SIZES) if is_size(case, x, size)]
    title = f"{kind_name.replace('_', ' ').capitalize()}, {rest.replace('_', ' ')}"
    facts: dict[str, Any] = {"title": title, "operator": kind_name, "implementations": implementations}
    facts |= {"block": flow(block), "x": x, "with_operator": False}
    write_new({path: rendered("sweep.yaml.j2", facts)})
    measure = f"measure: pytest bench/ --benchmark --bench-sweep {name}"
    show([measure, f"plan:    python -m bench list {name} --cases"])


def flow(block: dict[str, Any]) -> str:
    """A block of cases on one line of YAML."""
    return yaml.safe_dump(block, default_flow_style=True, sort_keys=False, width=math.inf).strip()


def smallest_case(operator: str) -> tuple[sweeps.Case, list[str]]:
    """The case of this operator with the least work of all in sweeps, and its implementations there.

    UserError if there is none.
    """
    loaded = sweeps.load_all(sweeps.SWEEPS, kernels.problem, ANY_SM_COUNT)
    cases = [case for each in loaded for case in each.cases if case.problem.operator == operator]
    if not cases:
        raise UserError(
            f"new sweep: no sweep measures {operator}, so none of its sizes is known to be possible"
        )
    least = min(cases, key=lambda case: (case.role != "measurement", case.problem.flop + case.problem.byte))
    return least, sorted({case.implementation for case in cases if case.problem == least.problem})


def is_size(case: sweeps.Case, parameter: str, size: int) -> bool:
    """Whether the case's implementation takes its problem with this value of one parameter."""
    try:
        problem = case.problem.model_validate(case.problem.parameters() | {parameter: size})
    except ValidationError:
        return False
    return not problem.refusal(case.implementation)


@new.command()
def gpu(
    name: Annotated[str, typer.Argument(help="File in bench/device/datasheets, such as rtx_4000_ada.")],
    driver_name: Annotated[
        str, typer.Option(metavar="TEXT", help="Its whole name as nvidia-smi -L has it.")
    ] = "",
    capability: Annotated[str, typer.Option(metavar="X.Y", help="Its compute capability.")] = "",
    sm_count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Its SMs.")] = None,
    l2_mib: Annotated[float | None, typer.Option(min=0.1, metavar="MIB", help="Its L2 cache.")] = None,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, metavar="GIB", help="Its memory.")] = None,
) -> None:
    """Write a GPU's datasheet: from these five options, or else from the driver of the GPU that is here.

    What neither says is null, and so are the peaks that follow from it, until it is filled in with a source.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise UserError(f"new gpu {name}: give lower-case letters, digits and _, such as rtx_4000_ada")
    path = FILES / f"{name}.yaml"
    refuse_taken(f"new gpu {name}", path)
    options: dict[str, Any] = {"--driver-name": driver_name, "--capability": capability}
    options |= {"--sm-count": sm_count, "--l2-mib": l2_mib, "--memory-gib": memory_gib}
    missing = [option for option, value in options.items() if not value]
    if not missing:
        assert sm_count and l2_mib and memory_gib
        if not re.fullmatch(r"\d+\.\d", capability):
            raise UserError(f"--capability {capability}: give major and minor number, such as 8.9")
        major, minor = map(int, capability.split("."))
        byte = round(l2_mib * 2**20), round(memory_gib * 2**30)
        sheet = derive_datasheet(driver_name, (major, minor), sm_count, None, None, None, *byte)
        source = {"read": "given", "origin": "given on the command line of `bench new`; no document named"}
    elif len(missing) < len(options):
        raise UserError(f"new gpu {name}: give {', '.join(missing)} too")
    else:
        sheet = _here(name, list(options))
        source = {"read": "driver", "origin": "what the driver of one such GPU reports; our own"}
    named = sheet.name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ()/.+_-]*", named):
        raise UserError(f"new gpu {name}: {named!r} is no name that a driver gives")
    for other in datasheets():
        if named in (*other.match, other.name):
            raise UserError(
                f"new gpu {name}: bench/device/datasheets/{other.slug}.yaml is of {named} already"
            )
    write_new({path: _datasheet_text(sheet, source)})
    show([f"check:   pytest tests/bench/test_datasheet.py; python -m bench list --on {name}"])


def _here(name: str, options: list[str]) -> Datasheet:
    """What the driver says of the GPU that is here. UserError if there is none, or if it has a file."""
    try:
        device = detect("cuda")
    except UserError as error:
        raise UserError(f"new gpu {name}: no GPU is here to be read; give {', '.join(options)}") from error
    if device.datasheet is None or not device.derived:
        raise UserError(f"new gpu {name}: {device} has a file already; give {', '.join(options)} of another")
    return device.datasheet


def _datasheet_text(sheet: Datasheet, source: Mapping[str, str]) -> str:
    """A file of these facts; `source`: its key `read`, and its text `origin`."""
    rates: Mapping[Any, Rate] = sheet.rates

    def figure(value: float | None) -> str:
        if value is None:
            return '{value: null, source: unknown, note: "not filled in yet"}'
        return f"{{value: {round(value):_}, source: {source['read']}}}"

    def rate(unit: str, dtype: str) -> str:
        known = rates.get((unit, dtype))
        if known is not None and known.runs_on:
            return f"{{runs_on: {known.runs_on}, source: capability}}"
        fma = (known and known.fma_per_clock_per_sm) or "null"
        source = "capability" if known else "unknown"
        return (
            f"{{fma_per_clock_per_sm: {fma}, flop_per_s: null, source: {source}, "
            'note: "peak not filled in yet"}'
        )

    facts = {"sheet": sheet, "units": UNITS, "figure": figure, "rate": rate, "rates_known": bool(rates)}
    return rendered("gpu.yaml.j2", {**facts, **source})


def rendered(template: str, facts: Mapping[str, Any]) -> str:
    """The text of a file from its template in bench/cli/templates."""
    demand("new", "jinja2")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(facts)


def refuse_taken(what: str, *paths: Path) -> None:
    """UserError if one of these paths exists."""
    for path in paths:
        if path.exists():
            raise UserError(f"{what}: {path.relative_to(ROOT)} exists; give another name")


def write_new(texts: Mapping[Path, str]) -> None:
    """Write these files, all or none, and show where they are to be filled in. UserError if one cannot be."""
    made: list[Path] = []
    try:
        for path, text in texts.items():
            for folder in reversed([parent for parent in path.parents if not parent.exists()]):
                folder.mkdir()
                made.append(folder)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except BaseException as error:
        for there in reversed(made):
            there.rmdir() if there.is_dir() else there.unlink()
        if isinstance(error, OSError):
            raise UserError(f"{path}: cannot be written, so nothing is: {error.strerror}") from error
        raise
    shown = {path: os.path.relpath(path) for path in texts}
    show(f"written: {shown[path]}" for path in texts)
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if PLACE in line:
                show([f"fill in: {shown[path]}:{number}: {line.partition(PLACE)[2]}"])
