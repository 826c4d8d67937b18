"""Ceilings of caches, of one SM and of one tile: a device made up at random, read back from its rows."""

import dataclasses
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from bench.errors import UserError
from bench.model.ceilings import Ceilings, MixedCeilings, by_run
from bench.spec import parameters_text
from bench.store.schema import Measurement, RunKey
from tests.bench.rows import row as any_row
from tests.bench.rows import stored
from tests.our_sweeps import role

MIB = 2**20
SETS = [2**exponent for exponent in (18, 20, 22, 24, 26, 29)]
STEPS = (64, 256, 512, 2048, 8192)


RUN = RunKey("gpu", "x", "r1")


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


def row(seconds: float, parameters: dict[str, Any], **facts: Any) -> Measurement:
    """A row of a ceiling that took so many seconds, in no state to speak of."""
    values: dict[str, Any] = {
        "run_id": "r1",
        "device": "gpu",
        "device_kind": "cuda",
        "sm_count": 100,
        "dtype": "float32",
        "cache": "cold",
        "median_s": seconds,
        "samples_s": None,
        "parameters": parameters_text(parameters),
    }
    values |= facts
    return any_row(**({"role": role(values["sweep"])} | values))


def launch(seconds: float, **facts: Any) -> Measurement:
    counts = {"sweep": "ceilings/launch", "implementation": "aten", "arithmetic": "vector"}
    return row(seconds, {}, **(counts | facts))


def copied(working_set: int, seconds: float, **facts: Any) -> Measurement:
    """A warm copy whose x and y hold so many bytes together."""
    counts = {"operator": "stream", "implementation": "aten", "arithmetic": "vector", "cache": "warm"}
    counts |= {"byte": working_set, "byte_written": working_set // 2}
    counts["sweep"] = "ceilings/cache"
    return row(seconds, {"kind": "copy", "length": working_set // 8}, **(counts | facts))


def by_programs(programs: int, seconds: float, **facts: Any) -> Measurement:
    """A copy in memory of 256 MiB by so many programs; 0 is the usual copy."""
    parameters = {"kind": "copy", "length": 2**26} | ({"programs": programs} if programs else {})
    counts = {"operator": "stream", "implementation": "triton", "arithmetic": "vector"}
    counts |= {"byte": 2**29, "byte_written": 2**28}
    counts["sweep"] = "ceilings/one_sm"
    return row(seconds, parameters, **(counts | facts))


def product(m: int, n: int, k: int, seconds: float, **facts: Any) -> Measurement:
    counts = {"implementation": "triton-128x128", "arithmetic": "matrix", "dtype": "bfloat16"}
    counts |= {"cache": "warm", "flop": 2 * m * n * k, "byte": 2 * (m * n + m * k + n * k)}
    counts["sweep"] = "ceilings/one_tile"
    return row(seconds, {"m": m, "n": n, "k": k, "layout": "TN"}, **(counts | facts))


def cold(some: list[Measurement], *condition: str) -> Ceilings:
    return by_run(some)[RUN, *(condition or ("cold",))]


# --- caches --------------------------------------------------------------------------------------------


def caches(chance: random.Random, launch_s: float) -> tuple[dict[int, float], list[Measurement]]:
    """Bandwidths of working sets, and the rows of a device that has them, in any order."""
    true = {size: chance.uniform(1e11, 1e13) for size in SETS}
    # Even the smallest takes several floors, lest it be left out.
    true = {size: min(rate, size / (3 * launch_s)) for size, rate in true.items()}
    found = [copied(size, launch_s + size / rate) for size, rate in true.items()]
    chance.shuffle(found)
    return true, found


def test_a_warm_copy_tells_the_bandwidth_of_its_working_set_without_the_floor(chance: random.Random) -> None:
    launch_s = chance.uniform(5e-7, 3e-6)
    true, some = caches(chance, launch_s)
    for given in ([launch(launch_s), *some], stored([launch(launch_s), *some])):
        found = cold(given)
        assert list(found.cached) == SETS and all(type(size) is int for size in found.cached)
        assert [c.per_s for c in found.cached.values()] == pytest.approx(list(true.values()))
        assert not found.bandwidth_byte_per_s  # no cache is taken for memory


def test_its_interval_is_that_of_its_row_without_the_floor() -> None:
    found = cold([launch(1e-6), copied(MIB, 11e-6, low_s=10e-6, high_s=13e-6)]).cached[MIB]
    assert (found.low_per_s, found.per_s, found.high_per_s) == pytest.approx(
        (MIB / 12e-6, MIB / 1e-5, MIB / 9e-6)
    )
    quick = [11e-6] * 40 + [10.5e-6] * 10
    found = cold([launch(1e-6), copied(MIB, 11e-6, low_s=10.9e-6, high_s=11.1e-6, samples_s=quick)]).cached[
        MIB
    ]
    assert found.per_s == found.high_per_s == pytest.approx(MIB / 9.5e-6)
    wild = cold([launch(1e-6), copied(MIB, 11e-6, low_s=0.9e-6, high_s=1.0)]).cached[MIB]
    assert wild.high_per_s == math.inf and 0 < wild.low_per_s < wild.per_s


@pytest.mark.parametrize(("floors", "kept"), [(1.99, False), (2.01, True)])
def test_what_is_mostly_launch_tells_nothing_of_a_cache(floors: float, kept: bool) -> None:
    found = cold([launch(1e-6), copied(MIB, floors * 1e-6), by_programs(1, floors * 1e-6)])
    assert (MIB in found.cached) == (found.sm_byte_per_s is not None) == kept


def test_without_a_floor_nothing_can_be_taken_off() -> None:
    some = [copied(MIB, 1e-5), by_programs(1, 1e-2), *(product(128, 128, k, k * 1e-9) for k in STEPS)]
    found = cold(some)
    assert not found.cached and found.sm_byte_per_s is None and not found.step and not found.listed()


def test_warm_probes_make_no_warm_ceilings_but_belong_to_them(chance: random.Random) -> None:
    """Warm rows go on to be held against the cold roof, unless somebody measured a warm floor or peak."""
    _, some = caches(chance, 1e-6)
    memory = copied(2**29, 1e-3, cache="cold", sweep="ceilings/stream")
    base = [launch(1e-6), memory, *some]
    assert list(by_run(base)) == [(RUN, "cold")]
    both = by_run([launch(3e-6, cache="warm"), *base])
    assert set(both) == {(RUN, "cold"), (RUN, "warm")}
    warm, usual = both[RUN, "warm"], both[RUN, "cold"]
    assert (warm.launch_s, usual.launch_s) == (3e-6, 1e-6)
    assert warm.cached == usual.cached and len(usual.cached) == len(SETS)
    assert warm.bandwidth_byte_per_s == usual.bandwidth_byte_per_s  # memory is the same memory
    assert warm.copy_byte_per_s == pytest.approx(2**29 / 1e-3)


def test_one_thread_and_other_runs_have_caches_of_their_own() -> None:
    given = [launch(1e-6), copied(MIB, 11e-6)]
    given += [launch(1e-6, threads_asked="one"), copied(MIB, 21e-6, threads_asked="one")]
    given += [launch(2e-6, run_id="r2"), copied(MIB, 42e-6, run_id="r2")]
    found = by_run(given)
    rates = {(run.run_id, of): ceilings.cached[MIB].per_s for (run, of), ceilings in found.items()}
    wanted = {("r1", "cold"): 1e-5, ("r1", "cold, one thread"): 2e-5, ("r2", "cold"): 4e-5}
    assert rates == pytest.approx({key: MIB / seconds for key, seconds in wanted.items()})


def test_between_working_sets_logarithms_are_joined_by_a_line(chance: random.Random) -> None:
    true, some = caches(chance, 1e-6)
    found = cold([launch(1e-6), *some])
    assert found.cached_byte_per_s(SETS) == pytest.approx(list(true.values()))
    for small, large in itertools.pairwise(SETS):
        middle = found.cached_byte_per_s(math.sqrt(small * large))
        assert middle == pytest.approx(math.sqrt(true[small] * true[large]))
    with np.errstate(all="raise"):
        beyond = found.cached_byte_per_s([[0, 1, SETS[0] - 1], [SETS[-1] + 1, 1e12, 1e30]])
    assert beyond is not None and beyond.shape == (2, 3)
    assert beyond[0] == pytest.approx(true[SETS[0]]) and beyond[1] == pytest.approx(true[SETS[-1]])
    assert np.isnan(np.asarray(found.cached_byte_per_s(math.nan)))
    assert Ceilings().cached_byte_per_s(1e6) is None


def test_one_sm_draws_what_few_programs_move_each(chance: random.Random) -> None:
    rate, launch_s = chance.uniform(1e10, 1e11), 2e-6
    alone = [by_programs(p, launch_s + 2**29 / (rate * p * 0.9 ** (p > 1))) for p in (2, 1, 8)]
    found = cold([launch(launch_s), *alone])
    assert found.sm_byte_per_s is not None and found.sm_byte_per_s.per_s == pytest.approx(rate)
    assert "-programs1-" in found.sm_byte_per_s.row
    assert not found.bandwidth_byte_per_s  # a device is not one SM


# --- one tile ------------------------------------------------------------------------------------------


def tiles(
    dtype: str, launch_s: float, tile_s: float, step_s: float, noise: random.Random
) -> list[Measurement]:
    """Rows of one tile at growing K, each within 0.3 % or so of what it takes."""
    found = []
    for k in STEPS:
        true_s = launch_s + tile_s + k / 64 * step_s
        seconds = noise.gauss(true_s, 0.003 * true_s)
        ends = {"low_s": seconds * (1 - 0.006), "high_s": seconds * (1 + 0.006)}
        found.append(product(128, 128, k, seconds, dtype=dtype, **ends))
    return found


def test_step_and_tile_of_each_data_type_are_slope_and_rest(chance: random.Random) -> None:
    true = {
        d: (chance.uniform(3e-7, 2e-6), chance.uniform(8e-8, 6e-7)) for d in ("bfloat16", "float16", "tf32")
    }
    some = [launch(2e-6), *(one for d, (t, s) in true.items() for one in tiles(d, 2e-6, t, s, chance))]
    some = some[::-1]
    for given in (some, stored(some)):
        found = cold(given)
        assert list(found.step) == list(found.tile) == sorted(true)
        for dtype, (tile_s, step_s) in true.items():
            assert found.step[dtype].seconds == pytest.approx(step_s, rel=0.03)
            assert found.tile_s[dtype] == pytest.approx(tile_s, abs=0.03 * (2e-6 + tile_s + step_s))
            for one in (found.step[dtype], found.tile[dtype]):
                assert one.low_s <= one.seconds <= one.high_s
            assert "128x128" in found.step[dtype].row


def test_one_tile_is_no_peak_even_where_there_is_no_other(chance: random.Random) -> None:
    alone = [launch(2e-6), *tiles("bfloat16", 2e-6, 1e-6, 2e-7, chance)]
    assert not cold(alone).peak_flop_per_s and cold(alone).step
    assert list(by_run(alone)) == [(RUN, "cold")]
    # The same kernel with more tiles, and a tile that no name forces, count as any product does.
    for other in (
        product(256, 128, 64, 1e-6, cache="cold"),
        product(128, 128, 64, 1e-6, implementation="cublas", cache="cold"),
    ):
        found = cold([*alone, other])
        assert found.peak("matrix", "bfloat16") == pytest.approx(other.flop / 1e-6)
        assert found.step == cold(alone).step


def test_too_few_points_and_lines_that_fall_say_nothing() -> None:
    def step(times: dict[int, float]) -> Any:
        return cold([launch(1e-7), *(product(128, 128, k, s) for k, s in times.items())]).step

    some = {k: (1 + i) * 1e-6 for i, k in enumerate(STEPS)}
    assert step(dict(list(some.items())[:4])) and not step(dict(list(some.items())[:3]))
    assert not step({k: 6e-6 - s for k, s in some.items()})
    short = [product(128, 128, k, 1e-6 * (1 + k)) for k in STEPS[:3]]
    assert not cold([launch(2e-6), *short, *short]).step  # the same K again is no further point


def test_a_tile_that_comes_out_negative_is_told_so_but_used_as_nothing() -> None:
    some = [launch(2e-6), *(product(128, 128, k, 1.9e-6 + k * 1e-9) for k in STEPS)]
    found = cold(some)
    assert found.tile["bfloat16"].seconds == pytest.approx(-1e-7)
    assert found.tile_s["bfloat16"] == 0.0


# --- one calibration -----------------------------------------------------------------------------------

STATES: dict[str, tuple[Any, Any]] = {
    "driver": ("570.1", "580.2"),
    "power_limit_w": (700.0, 350.0),
    "regime": ("sustained", "boost"),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("from_a_file", [False, True])
def test_ceilings_of_several_drivers_limits_or_regimes_are_no_calibration(
    name: str, from_a_file: bool
) -> None:
    before, after = STATES[name]
    mixed = [launch(1e-6, **{name: before}), copied(MIB, 1e-5, **{name: after})]
    given = stored(mixed) if from_a_file else mixed
    wanted = f"run r1 on gpu: its ceilings were measured with {name} {before} and {after}, "
    with pytest.raises(MixedCeilings, match=wanted) as said:
        by_run(given)
    assert isinstance(said.value, UserError) and "\n" not in str(said.value)
    # Two runs or units may differ, and rows that are no ceilings, or have no time, are nobody's calibration.
    elsewhere = [
        dataclasses.replace(mixed[1], **change)
        for change in ({"run_id": "r2"}, {"device_id": "b2"}, {"role": "measurement"})
    ]
    elsewhere.append(dataclasses.replace(mixed[1], median_s=None, status="skipped"))
    for other in elsewhere:
        assert by_run([mixed[0], other])[RUN, "cold"].launch_s == 1e-6


# --- for people ----------------------------------------------------------------------------------------


def test_every_ceiling_is_listed_with_its_interval_and_its_row(chance: random.Random) -> None:
    _, some = caches(chance, 2e-6)
    some += tiles("bfloat16", 2e-6, 1e-6, 2e-7, chance)
    some += [launch(2e-6, low_s=1.9e-6, high_s=2.2e-6), by_programs(1, 1e-2), by_programs(0, 2e-4)]
    some += [
        product(8192, 8192, 8192, 2e-3, implementation="cublas", cache="cold", low_s=1.9e-3, high_s=2.1e-3)
    ]
    for share, seconds in ((0, 1e-4), (2**29 // 3, 3e-4), (2**28 * 2, 4e-4), (2**29 // 5, 1e-3)):
        some.append(by_programs(0, seconds, byte_written=share, implementation="aten"))
    found = cold(some).listed()
    named = {one.name: one for one in found}
    assert len(named) == len(found) == 1 + 1 + 5 + len(SETS) + 1 + 2
    assert found[0].name == "launch floor" and found[0][1:5] == (2e-6, 1.9e-6, 2.2e-6, "s")
    assert {f"memory {what}" for what in ("read", "triad", "copy", "write", "20 % written")} < set(named)
    peak = named["peak matrix bfloat16"]
    rates = [2 * 8192**3 / seconds for seconds in (2e-3, 2.1e-3, 1.9e-3)]
    assert [peak.value, peak.low, peak.high] == pytest.approx(rates) and peak.unit == "FLOP/s"
    assert {"copy within 0.25 MiB", "step 128x128x64 bfloat16", "memory copy by one SM"} < set(named)
    for one in found:
        assert one.low <= one.value <= one.high and one.row and one.unit in ("s", "FLOP/s", "byte/s")
    assert Ceilings().listed() == []


def test_of_two_copies_the_roof_is_the_better() -> None:
    """As of a driver's copy in a graph at 0.46 of what a kernel reaches."""
    times = {"aten": 1.06e-3, "triton": 1e-3}
    twins = [by_programs(0, s, implementation=name, sweep="ceilings/stream") for name, s in times.items()]
    assert cold(twins).copy_byte_per_s == pytest.approx(2**29 / 1e-3)
