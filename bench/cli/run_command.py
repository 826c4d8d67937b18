"""`python -m bench run OPERATOR NAME=VALUES...`: measure an operator at sizes given on the command line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

import kernels
from bench.cli.application import DeviceOption, ResultsOption
from bench.cli.completion import implementations, operators
from bench.errors import UserError, unknown

_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)(?::([0-9]+))?")
_NUMBER = re.compile(r"[0-9]+")


def run(
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR", help="A folder of kernels/, such as gemm.", autocompletion=operators
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
    implementation: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Only these; default: all but gemm's held to one tile.",
            autocompletion=implementations,
        ),
    ] = "",
    cache: Annotated[str, typer.Option(metavar="cold|warm", help="Where a launch finds its data.")] = "cold",
    bench_device: DeviceOption = "auto",
    bench_budget: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Wall time, as for pytest.")
    ] = None,
    bench_visits: Annotated[int, typer.Option(metavar="N", help="Visits of each case.")] = 1,
    bench_results: ResultsOption = None,
    fresh_ceilings: Annotated[
        bool, typer.Option("--bench-fresh-ceilings", help="Take no ceilings of an earlier run.")
    ] = False,
) -> None:
    """Measure an operator at sizes given here, without a sweep; then as any run: rows, flags, figures.

    Exit code 2: bad input, or nothing of it can run here. 3: no case got a time.
    """
    from bench.cli.terminal import standard_output
    from bench.cli.whole_run import measure
    from bench.runner.run import Options
    from bench.runner.session import RESULTS

    if operator not in kernels.names():
        raise UserError(f"run {operator}: {unknown('operator', operator, 'kernels/', kernels.names())}")
    with sweep_file("run", sweep_of(operator, given or [], implementation, cache)) as path:
        options = Options(
            device=bench_device,
            sweeps=[str(path)],
            budget=bench_budget,
            visits=str(bench_visits),
            results=(bench_results or RESULTS).absolute(),
            fresh_ceilings=fresh_ceilings,
        )
        results = measure(options, kernels.problem, standard_output())
    if any(result.reason for result in results):
        raise typer.Exit(2)
    if not any(row.is_timed and row.role == "measurement" for result in results for row in result.rows):
        raise typer.Exit(3)


@contextmanager
def sweep_file(command: str, asked: dict[str, Any]) -> Iterator[Path]:
    """A file of this sweep for a while; UserErrors about it name the command instead of the file."""
    operator = asked["operator"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{operator}.yaml"
        path.write_text(yaml.safe_dump(asked, sort_keys=False))
        try:
            yield path
        except UserError as error:
            place = re.compile(rf"{re.escape(str(path))}(:[0-9]+)?: ")
            raise UserError(f"{command} {operator}: {place.sub('', str(error))}") from error


def sweep_of(operator: str, given: list[str], implementation: str, cache: str) -> dict[str, Any]:
    """The sweep that these words ask for, as its file would have it. UserError for a word that is none."""
    block = dict(map(_parameter, given))
    # The plot runs along a range, else along numbers of which there are several.
    ranges = [name for name, values in block.items() if isinstance(values[0], dict)]
    several = [name for name, values in block.items() if isinstance(values[0], int) and len(values) > 1]
    along = ranges or several
    sweep: dict[str, Any] = {
        "title": f"{operator}, as asked on the command line",
        "source": {"document": "none", "range": "ours"},
        "operator": operator,
    }
    if implementation:
        sweep["implementations"] = implementation.split(",")
    sweep |= {"cache": cache, "cases": [block or {}]}
    if along:
        sweep["plot"] = {"x": along[0].split("=")[0], "y": "median_s", "log": ["x", "y"]}
    return sweep


def _parameter(word: str) -> tuple[str, list[Any]]:
    name, equals, values = word.rpartition("=")
    if not equals or not name or not values:
        raise UserError(f"{word}: give NAME=VALUES, such as n=64..4096, layout=NN,TN or m=n=k=512")
    return name, [_value(text, word) for text in values.split(",")]


def _value(text: str, word: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text)
    if ".." not in text:
        return text
    if (match := _RANGE.fullmatch(text)) is None:
        raise UserError(f"{word}: {text} is no range; give 64..4096, which doubles, or 64..512:8")
    start, end, step = match.groups()
    how = {"step": int(step)} if step else {"factor": 2}
    return {"from": int(start), "to": int(end), **how}
