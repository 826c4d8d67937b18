"""What the commands of `python -m plots` share: their arguments, reading results, where files go."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow.compute as pc
import typer

from bench.cli.application import left_out, remark
from bench.device.datasheet import find_datasheet
from bench.environment.dependencies import ROOT
from bench.errors import UserError
from bench.judge.frame import DeviceRun
from bench.judge.read_runs import load
from bench.store.parquet import tables

COMPARED = "compared"
"""Folder of the figures of several runs together."""


def output(metavar: str, text: str) -> Any:
    """The option -o, for a FILE or a DIR."""
    return typer.Option("-o", "--output", metavar=metavar, help=text)


CalibrateBy = Annotated[
    list[Path] | None,
    typer.Option(
        "--calibrated-by",
        metavar="RESULT",
        help="Runs whose ceilings and calibration stand in, for the same device, where a result has none of "
        "its own, as points of a published figure. Repeatable.",
    ),
]


def figures() -> Path:
    """The default folder of figures: `figures` of the checkout inside it, of the current folder elsewhere."""
    inside = Path.cwd().is_relative_to(ROOT)
    return Path(os.path.relpath(ROOT / "figures") if inside else "figures")


def newest(path: Path) -> list[Path]:
    """A file itself; of a folder the newest run of each folder below it, and every imported table.

    A run has several files if it had several GPUs, or if rows were recovered after a kill.
    The committed runs in a folder `reference` are left out where there are others.
    """
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    others = [file for file in files if "reference" not in file.relative_to(path).parts]
    kept: list[Path] = []
    runs: dict[Path, list[Path]] = {}
    for file in others or files:
        is_run = re.match(r"[0-9]{8}T", file.stem) is not None  # with which run ids begin
        (runs.setdefault(file.parent, []) if is_run else kept).append(file)
    for of_folder in runs.values():
        newest_id = _run_id(of_folder[-1])
        kept += [file for file in of_folder if _run_id(file) == newest_id]
    return sorted(kept) or [path]


def _run_id(file: Path) -> list[str]:
    """When a file's run began, and its commit."""
    return re.split("[-.]", file.stem)[:2]


def by_device(files: Iterable[Path]) -> tuple[list[list[Path]], int]:
    """(the files of each device, in the order in which devices are named first; how many rows have a time).

    All are one part if a file holds several. Files that cannot be read are remarked on; UserError if
    none can.
    """
    found, timed = [], 0
    for file, of in tables(files, left_out, ["device", "median_s"]):
        found.append((file, pc.unique(of["device"]).to_pylist()))
        timed += len(of) - of["median_s"].null_count
    apart = all(len(devices) == 1 for _, devices in found)
    parts: dict[str, list[Path]] = {}
    for file, devices in found:
        parts.setdefault(devices[0] if apart else "", []).append(file)
    return list(parts.values()), timed


@contextmanager
def writing(what: str) -> Iterator[None]:
    """UserError if a file of this block cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename}: {what} cannot be written here: {error.strerror}") from error


def load_runs(
    results: Sequence[Path],
    calibrate_by: Sequence[Path] | None = None,
    one_unit: bool = False,
    untimed: bool = False,
    say: Callable[[str], object] = remark,
) -> list[DeviceRun]:
    """The runs of these files, those of the device that was named first before the others.

    `one_unit`: of several units of one kind only one is kept, which is remarked on to `say`, as is each run
    that another run calibrates. UserError if no row has a time, unless runs may be `untimed`.
    """
    units = say if one_unit else None
    by = calibrate_by or ()
    runs = load(results, find_datasheet, lambda why: say(f"left out: {why}"), by, units, untimed)
    for run in runs:
        if run.calibrating:
            say(f"{run.device} {run.name}: calibrated by run {run.calibrating.run_id}")
    devices = {run.device for run in runs}
    if len(devices) > 1:  # `load` puts them in alphabetical order
        read = tables(results, lambda refusal: None, ["device"])
        first = next(name for _, table in read for name in table["device"].to_pylist() if name in devices)
        runs.sort(key=lambda run: run.device != first)
    return runs
