"""The table that a GPU's goals are read from: shares of a copy, and ours against the best library."""

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.judge.efficiency import Efficiency, efficiencies, region
from bench.judge.frame import runs
from bench.store.parquet import write
from bench.store.schema import Measurement
from kernels.launch.problem import LaunchFloor
from kernels.stream.problem import Stream
from kernels.transfer.problem import Transfer
from tests.plots.synthetic import H100, ceilings, row

COPY_BYTE_PER_S = 2e12
SMALL = Stream(kind="copy", dtype="float32", length=1 << 20)
LARGE = Stream(kind="copy", dtype="float32", length=1 << 28)


def timed(problem: Stream | Transfer, implementation: str, share: float, **changes: object) -> Measurement:
    """A row that reaches this share of the copy's bandwidth."""
    median_s = problem.byte / (share * COPY_BYTE_PER_S)
    found = row(H100, "stream/mine", problem, "aten", median_s=median_s, low_s=median_s, high_s=median_s)
    return dataclasses.replace(found, **{"implementation": implementation, "settled": True, **changes})  # type: ignore[arg-type]


def table(*rows: Measurement) -> list[Efficiency]:
    copy = timed(LARGE, "aten", 1.0, sweep="ceilings/stream", role="roof")
    floor = row(H100, "ceilings/launch", LaunchFloor(dtype="float32"), "aten", median_s=2e-6)
    (run,) = runs([copy, floor, *rows])
    return list(efficiencies(run))


def test_shares_and_ratios_by_hand() -> None:
    rows = [
        timed(LARGE, "aten", 0.5),
        timed(LARGE, "inductor", 0.6),
        timed(LARGE, "triton", 0.9),
        timed(LARGE, "triton-other", 0.3),
        timed(SMALL, "aten", 0.4),
        timed(SMALL.model_copy(update={"length": 1 << 19}), "aten", 0.2),
    ]
    found = {(one.region, one.implementation): one for one in table(*rows)}
    assert [*found] == [
        *(("<= 1/2 cache", "aten"), ("> 4 x cache", "aten"), ("> 4 x cache", "inductor")),
        *(("> 4 x cache", "triton"), ("> 4 x cache", "triton-other")),
    ]
    assert found["<= 1/2 cache", "aten"].of_copy == pytest.approx((0.2, 0.4))
    assert found["> 4 x cache", "triton"].of_copy == pytest.approx((0.9,))
    assert found["> 4 x cache", "triton"].versus_best == pytest.approx((1.5,))
    assert found["> 4 x cache", "triton-other"].versus_best == pytest.approx((0.5,))
    assert found["> 4 x cache", "aten"].versus_best == ()
    assert {(one.operator, one.kind) for one in found.values()} == {("stream", "float32 copy")}


def test_copies_over_the_link_to_the_host_are_not_held_against_memory() -> None:
    over_the_link = Transfer(direction="device-to-host", memory="pinned", length=1 << 24, dtype="float32")
    assert table(timed(over_the_link, "aten", 0.01)) == []


@pytest.mark.parametrize(
    "changes",
    [{"cache": "warm"}, {"status": "wrong"}, {"median_s": None}, {"rate": "flop"}, {"settled": False}],
)
def test_what_proves_nothing_is_left_out(changes: dict[str, object]) -> None:
    assert table(timed(LARGE, "aten", 0.5, **changes)) == []
    assert len(table(timed(LARGE, "aten", 0.5))) == 1


def test_above_the_roof_is_left_out() -> None:
    assert table(timed(LARGE, "triton", 1.2)) == []


def test_regions_by_hand() -> None:
    found = [region(byte, 100) for byte in (1, 50, 51, 400, 401)]
    assert found == ["<= 1/2 cache"] * 2 + ["<= 4 x cache"] * 2 + ["> 4 x cache"]


def test_the_command(tmp_path: Path) -> None:
    rows = [*ceilings(H100), timed(LARGE, "aten", 0.5), timed(LARGE, "triton", 0.6)]
    path = write(tmp_path / "run.parquet", rows)
    said = CliRunner().invoke(app, ["efficiency", str(path)])
    assert said.exit_code == 0
    (line,) = [line for line in said.output.splitlines() if " triton " in line]
    assert line.split()[:2] == ["stream", "float32"] and line.endswith("1.20")
    without = write(tmp_path / "without.parquet", [timed(LARGE, "aten", 0.5)])
    refused = CliRunner().invoke(app, ["efficiency", str(without)])
    assert refused.exit_code == 2 and "measured no bandwidth of a copy" in refused.output
