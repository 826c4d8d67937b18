"""Result files -> one DeviceRun for each run of a unit, and what a run borrows from another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.device.datasheet import Datasheet
from bench.errors import UserError
from bench.judge.flags import measurable
from bench.judge.frame import DeviceRun
from bench.model.calibrated_runs import Known, known
from bench.model.ceilings import Ceilings, MixedCeilings, by_run
from bench.store import parquet
from bench.store.parquet import Rows, Sweeps
from bench.store.schema import Measurement, RunKey, run_names


def read(
    paths: Iterable[Path],
    left_out: Callable[[str], object] | None = None,
    other_units: Callable[[str], object] | None = None,
) -> list[DeviceRun]:
    """The runs of these result files, by device and name. UserError as `bench.store.parquet.tables` raises.

    `left_out` is called with files that cannot be read. With `other_units`, only one unit of each kind of GPU
    is read, and the others are reported to it. The rows of others stay in their table until they are asked
    for.
    """
    measured: list[Measurement] = []
    imported: dict[RunKey, list[pa.Table]] = defaultdict(list)
    sweeps: dict[RunKey, Sweeps] = {}
    for _, table in parquet.tables(paths, left_out):
        sweeps |= dict.fromkeys(parquet.runs_of(table), parquet.sweeps_of(table))
        if table["source"].null_count or table["on_processor"].null_count < len(table):
            measured += parquet.rows(table)
        else:
            for key in parquet.runs_of(table):
                imported[key].append(parquet.of_run(table, key))
    measured = measured if other_units is None else of_one_unit(measured, other_units)
    for key in imported.keys() & {RunKey.of(row) for row in measured}:
        measured += [row for table in imported.pop(key) for row in parquet.rows(table)]
    rows = _by_run(measured) | {key: _rows_of(tables) for key, tables in imported.items()}
    return [replace(run, sweeps=sweeps[run.key]) for run in _runs(rows)]


def _rows_of(tables: Sequence[pa.Table]) -> Rows:
    """The rows of several tables of one run."""
    return Rows(pa.concat_tables(tables, promote_options="permissive"))


def of_one_unit(rows: Sequence[Measurement], say: Callable[[str], object]) -> list[Measurement]:
    """The rows of the unit of each kind of GPU that was measured last; the others are reported to `say`.

    Runs on several GPUs of a node share their name, and a figure has one line for a kind.
    """
    of_device: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.device_kind == "cuda" and row.source is None:
            of_device[row.device].append(row)
    only: dict[str, str] = {}
    for device, measured in of_device.items():
        last = max(measured, key=attrgetter("utc"))
        only[device] = last.device_id
        if any(row.device_id != last.device_id for row in measured):
            name = " ".join(filter(None, (last.host, last.pci_bus))) or last.device_id
            say(
                f"{device}: results of several units; {name}, measured last, stands for them. "
                "`python -m bench fleet RESULT...` compares all; to see another one, give its files"
            )
    return [row for row in rows if row.source or only.get(row.device, row.device_id) == row.device_id]


def runs(rows: Iterable[Measurement], without_mixed: bool = False) -> list[DeviceRun]:
    """One Run for each run of a unit among these rows, by device and name; `measurable` takes times away.

    MixedCeilings if those of a run cannot be one calibration, say because a driver changed under it;
    `without_mixed`, such a run has none.
    """
    return _runs(_by_run(rows), without_mixed)


def _by_run(rows: Iterable[Measurement]) -> dict[RunKey, Sequence[Measurement]]:
    by_key: dict[RunKey, list[Measurement]] = defaultdict(list)
    for row in rows:
        by_key[RunKey.of(row)].append(measurable(row))
    return {**by_key}


def _runs(by_key: Mapping[RunKey, Sequence[Measurement]], without_mixed: bool = False) -> list[DeviceRun]:
    names = run_names(by_key)
    order = sorted(by_key, key=attrgetter("device", "run_id", "device_id"))
    return [DeviceRun(key, names[key], by_key[key], _ceilings(by_key[key], without_mixed)) for key in order]


def _ceilings(rows: Sequence[Measurement], without_mixed: bool) -> Mapping[str, Ceilings]:
    """Condition -> ceilings of one run."""
    if isinstance(rows, Rows) and pc.all(pc.equal(rows.table["role"], "measurement")).as_py():
        return {}
    try:
        return {of: ceilings for (_, of), ceilings in by_run(rows).items()}
    except MixedCeilings:
        if not without_mixed:
            raise
        return {}


def load(
    paths: Iterable[Path],
    datasheet_of: Callable[[str], Datasheet | None],
    left_out: Callable[[str], object] | None = None,
    calibrate_by: Sequence[Path] = (),
    other_units: Callable[[str], object] | None = None,
    untimed: bool = False,
) -> list[DeviceRun]:
    """`read` for figures and scores: with datasheets, and with what a run without ceilings borrows.

    `datasheet_of` gives the datasheet of a device by its name. A run without ceilings of its own borrows
    those of a run of the same device in the files `calibrate_by`: on request, never by default. `left_out`
    and `other_units` as in `read`. UserError if no row has a time, unless runs may be `untimed`; if there is
    no row.
    """
    paths = list(paths)
    given = read(paths, left_out, other_units)
    if not given or not (untimed or any(run.measured for run in given)):
        statuses = Counter(row.status for run in given for row in run.rows)
        counts = ", ".join(f"{n} {status}" for status, n in statuses.most_common()) or "no rows"
        named = ", ".join(map(str, paths))
        raise UserError(f"{named}: no row has a time, so there is nothing to draw ({counts})")
    known = known_runs(read(calibrate_by), datasheet_of) if calibrate_by else ()
    by_device = {each.device_name: each for each in known}
    return [
        replace(
            run,
            datasheet=datasheet_of(run.device_name),
            calibrating=None if run.measured_ceilings else by_device.get(run.device_name),
        )
        for run in given
    ]


def known_runs(
    measured_runs: Iterable[DeviceRun], datasheet_of: Callable[[str], Datasheet | None]
) -> Iterator[Known]:
    """Every GPU run, under each condition, that has a datasheet and the ceilings of a matrix product."""
    for run in measured_runs:
        if run.first.device_kind == "cuda":
            for of, ceilings in sorted(run.ceilings.items()):
                here = run.columns[run.columns["condition"] == of]
                if (calibrating := known(here, ceilings, datasheet_of(run.device_name))) is not None:
                    yield calibrating
