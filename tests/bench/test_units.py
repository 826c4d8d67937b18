"""Units of one kind that begin in the same second: their runs have the same id, and share nothing else."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli.whole_run import measure
from bench.judge.compare import compare
from bench.nightly.night import Tonight
from bench.runner import options
from bench.runner.cases import ChosenCases
from bench.runner.run import Run
from bench.store.parquet import read_rows, write
from bench.store.schema import Measurement
from bench.sweep.load import SWEEPS
from kernels.gemm.problem import Gemm
from tests.bench import several
from tests.bench.claims_made import SWEEP, claim, timed
from tests.bench.comparable import runs_of
from tests.bench.comparable import timed as compared
from tests.bench.rows import again, lasting
from tests.bench.several import gpu, small
from tests.bench.test_nightly import NIGHTS, Machine
from tests.plots.synthetic import H100, ceilings, row

RUN = "20261101T020000Z-4f2a91c"
QUICK, SLOWER = "1f3c9a02b4d5", "9b2e00c1d7aa"
"""Two units; everything on the second takes twice as long."""


def printed(*words: object) -> str:
    """Standard output of `python -m bench WORDS`, which has nothing to refuse or to leave out."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code in (0, 1, 3) and not done.stderr, done.output
    return done.stdout


def of_unit(unit: str, rows: list[Measurement]) -> list[Measurement]:
    """The rows as the run of this unit would have them."""
    factor = 2.0 if unit == SLOWER else 1.0
    rows = [lasting(one, factor) if one.median_s is not None else one for one in rows]
    return again(rows, run_id=RUN, device_id=unit)


def products() -> list[Measurement]:
    """The ceilings of an H100 that float16 needs, and products by the library and by us."""
    rows = [one for one in ceilings(H100) if one.dtype == "float16" or not one.flop]
    sizes = [Gemm(m=size, n=size, k=size, dtype="float16") for size in (1024, 2048, 4096)]
    return rows + [row(H100, "gemm/square", size, name) for size in sizes for name in H100.libraries]


@pytest.mark.parametrize("options", [(), ("--role", "ceiling")])
def test_a_command_says_of_two_units_what_it_says_of_each(tmp_path: Path, options: tuple[str, ...]) -> None:
    alone = {}
    for unit in (QUICK, SLOWER):
        path = write(tmp_path / unit / "h100-sxm" / f"{RUN}.parquet", of_unit(unit, products()))
        alone[unit] = printed("table", path, *options)
        assert f"h100-sxm {RUN}" in alone[unit], "a single unit's run has its id for a name"
    named = [text.replace(RUN, f"{RUN}-{unit[:8]}") for unit, text in alone.items()]
    assert printed("table", tmp_path, *options) == "".join(named)


def test_the_claims_of_two_units_are_judged_on_the_rows_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has sizes of its own: a line of both would be one line. Of our sweeps there is one."""
    monkeypatch.setattr("bench.cli.claims.SWEEPS", SWEEPS / "gemm" / "aligned_k.yaml")
    stored = {SWEEP: {"claims": [claim("ratio", "below 1").model_dump(mode="json", exclude_defaults=True)]}}
    for unit, first in ((QUICK, 4000), (SLOWER, 4064)):
        rows = [timed(1e-6 * k * (1.0 if k % 8 else 1.25), k=k) for k in range(first, first + 64)]
        write(tmp_path / unit / f"{RUN}.parquet", of_unit(unit, rows), stored)
    ours, quick = (
        next(each for each in json.loads(printed("claims", "--json", path)) if each["sweep"] == SWEEP)
        for path in (tmp_path, tmp_path / QUICK)
    )
    assert ours["value"] == pytest.approx(quick["value"]) and ours["lines"] == 2 * quick["lines"]


def test_two_units_are_compared_and_are_no_run_beside_itself(chance: np.random.Generator) -> None:
    """Hosts of one kind of CPU may be compared; of several on a side the newest row of a case counts."""
    host = {"device_kind": "cpu", "device": "cpu-simulated", "run_id": RUN}
    host["device_id"] = QUICK
    mine = [compared(chance, case=10**6 + at, sweep="ceilings/gemm", **host) for at in range(7)]
    mine += [compared(chance, case=at, **host) for at in range(4)]
    later = "2026-11-21T11:00:00.000+00:00"
    others = [dataclasses.replace(one, device_id=SLOWER, utc=later) for one in mine]
    found = compare(runs_of(mine), runs_of(others))
    assert len(found.cases) == len(mine) and len(found.shifts) == 1
    found = compare(runs_of([*mine, *others]), runs_of(mine))
    assert {look.row.device_id for look in found.before.looks.values()} == {SLOWER}


def test_runs_of_two_devices_that_have_one_id_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, each on a GPU of another kind, began in the same second; both are resumed."""
    folder = several.stand_in(tmp_path, monkeypatch)
    several.once(monkeypatch)
    devices = [gpu(0), dataclasses.replace(gpu(1), slug="made-up-too")]
    cases = small(folder, [1, 2])
    for device in devices:
        begun = Run(device, folder / "results")
        begun.run_id = RUN
        begun.open()
        several.planned(begun.rounds, cases)
        next(begun.walk())
        assert begun.interrupted() is not None
    monkeypatch.setattr(options, "chosen_cases", lambda *_: ChosenCases(cases))
    for device in devices:
        monkeypatch.setattr(options, "detect", lambda wanted, device=device: device)
        found = measure(options.Options(results=folder / "results", resume=True))
        assert found.path is not None and found.path.stem == RUN
        assert {row.device for row in read_rows(found.path)} == {device.slug} and len(found.rows) == 2


def test_tonight_is_the_night_of_this_unit(tmp_path: Path, chance: np.random.Generator) -> None:
    """Hosts of one kind of CPU have one history, in which another's run of the same second comes last."""
    machine = Machine(tmp_path / "results", chance)
    machine.device = dataclasses.replace(machine.device, kind="cpu", index=None, uuid="")
    machine.facts = {"device_kind": "cpu"}
    machine.level_s = np.full_like(machine.level_s, 1e-3)
    machine.nights(NIGHTS)
    machine.facts = {"device_kind": "cpu", "device_id": "z"}
    other = write(tmp_path / "other.parquet", machine.rows(), machine.sweeps)
    other.rename(machine.results / "h100" / "other.parquet")
    machine.facts = {"device_kind": "cpu"}
    night: Tonight = machine.run()
    assert night.judged is not None and night.tonight is not None
    assert night.night and night.night.run.device_id == machine.device.id
