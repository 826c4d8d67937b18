"""Standings: figures by hand, their intervals, which rows meet, and the tables of `duel` and `efficiency`."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.judge.frame import DeviceRun, runs
from bench.judge.goals import goal_of
from bench.judge.standings import (
    CaseFigure,
    Standing,
    duels,
    efficiencies,
    figures,
    gemm_region,
    latest,
    region,
    timed,
)
from bench.spec import Dtype, Problem
from bench.store import parquet
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.launch.problem import LaunchFloor
from kernels.softmax.problem import Softmax
from kernels.stream.problem import Stream
from kernels.transfer.problem import Transfer
from tests.plots.synthetic import H100, row

SQUARE = Gemm(m=4096, n=4096, k=4096, dtype="float16")
COPY_BYTE_PER_S = 2e12
SMALL = Stream(kind="copy", dtype="float32", length=1 << 20)
LARGE = Stream(kind="copy", dtype="float32", length=1 << 28)


def measured(
    problem: Problem, implementation: str, median_s: float, half: float = 0.01, **changes: Any
) -> Measurement:
    """A row whose interval has all its noise."""
    facts = {"median_s": median_s, "low_s": median_s / (1 + half), "high_s": median_s * (1 + half)}
    facts |= {"noise_runs": 0.0}
    return row(H100, f"{problem.operator}/mine", problem, implementation, **(facts | changes))


def reaching(problem: Stream | Transfer, implementation: str, share: float, **changes: Any) -> Measurement:
    """A row that reaches this share of the copy's bandwidth."""
    return measured(problem, implementation, problem.byte / (share * COPY_BYTE_PER_S), **changes)


def run_of(*rows: Measurement) -> DeviceRun:
    copy = reaching(LARGE, "aten", 1.0, sweep="ceilings/stream", role="roof")
    floor = row(H100, "ceilings/launch", LaunchFloor(dtype="float32"), "aten", median_s=2e-6)
    (run,) = runs([copy, floor, *rows])
    return run


def fought(*rows: Measurement) -> list[tuple[str, str, CaseFigure]]:
    """(implementation, region, figure) of each duel, those over all shapes left out."""
    found = (each for each in duels(run_of(*rows), "cold")[0] if each.region != "16-bit, all aligned")
    return [(each.implementation, each.region, figure) for each in found for figure in each.figures]


# --- figures ----------------------------------------------------------------------------------------


def test_the_opponent_is_the_fastest_of_those_named_or_of_all_libraries() -> None:
    softmax = Softmax(dtype="float16", direction="forward", rows=4096, length=8192)
    seconds = {"triton": 1e-3, "triton-other": 0.5e-3, "aten": 2e-3, "inductor": 1.5e-3, "quack": 1.2e-3}
    run = run_of(*(measured(softmax, name, median_s) for name, median_s in seconds.items()))
    rows = latest(timed(run))
    for ours, to, value, opponent in (
        ("triton", (), 1.2, "quack"),
        ("triton", ("aten", "inductor"), 1.5, "inductor"),
        ("triton-other", (), 2.4, "quack"),
        ("triton", ("triton-other",), 0.5, "triton-other"),
    ):
        (one,) = figures(rows, run, ours, "ratio", to)
        assert one.value == pytest.approx(value) and one.opponent == opponent
    assert figures(rows, run, "triton", "ratio", ("liger",)) == ()


def test_intervals_add_as_squares_and_the_wider_end_counts() -> None:
    theirs = measured(SQUARE, "cublas", 3e-3, low_s=3e-3 / 1.015, high_s=3e-3 * 1.005)
    ours = measured(SQUARE, "triton", 2e-3, low_s=2e-3 / 1.01, high_s=2e-3 * 1.02)
    ((name, place, one),) = fought(theirs, ours)
    assert (name, place, one.opponent) == ("triton", "16-bit large", "cublas")
    assert one.value == pytest.approx(1.5)
    assert one.name == "gemm/mine-triton-float16-NN-m4096-n4096-k4096-cold"
    half = math.hypot(math.log(1.015), math.log(1.02))
    assert [math.log(1.5 / one.low), math.log(one.high / 1.5)] == pytest.approx([half, half])


@pytest.mark.parametrize("end", ["low_s", "high_s"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_time_without_an_interval_decides_nothing(end: str, side: int) -> None:
    rows = [measured(SQUARE, name, 1e-3) for name in ("cublas", "triton")]
    rows[side] = dataclasses.replace(rows[side], **{end: None})
    ((*_, one),) = fought(*rows)
    assert (one.value, one.low, one.high) == (1.0, 0.0, math.inf)


# --- which rows meet --------------------------------------------------------------------------------


def test_the_faster_cublas_is_the_opponent_and_variants_of_ours_each_fight() -> None:
    seconds = {"cublaslt": 2e-3, "triton-split-k": 1e-3, "triton": 1e-3}
    seconds |= {"inductor": 1e-4, "cublaslt-best": 1e-4}
    rows = [measured(SQUARE, name, median_s) for name, median_s in seconds.items()]
    against = [(name, one.opponent, round(one.value, 9)) for name, _, one in fought(*rows)]
    assert against == [("triton", "cublaslt", 2.0), ("triton-split-k", "cublaslt", 2.0)]
    for median_s, opponent in ((1e-3, "cublas"), (3e-3, "cublaslt")):
        met = fought(*rows, measured(SQUARE, "cublas", median_s))
        assert {one.opponent for *_, one in met} == {opponent}
    assert not fought(*rows[1:])


def test_only_the_same_problem_is_compared_whatever_the_sweep() -> None:
    theirs = measured(SQUARE, "cublas", 1e-3, sweep="gemm/other")
    assert len(fought(theirs, measured(SQUARE, "triton", 1e-3))) == 1
    for change in ({"k": 2048}, {"layout": "TN"}, {"dtype": "bfloat16"}, {"beta": 1}, {"pitch": "padded"}):
        other = measured(SQUARE.model_copy(update=change), "triton", 1e-3)
        assert duels(run_of(theirs, other), "cold") == ([], 0)


def test_the_later_sound_row_of_one_problem_stands() -> None:
    rows = [measured(SQUARE, "cublas", s, sweep=f"gemm/{s}") for s in (1e-3, 3e-3)]
    rows.append(measured(SQUARE, "triton", 1e-3))
    for more in ((), ({"visit": 1},), ({"settled": False},), ({"cache": "warm"},)):
        again = [measured(SQUARE, "cublas", 9e-3, **changes) for changes in more]
        assert [one.value for *_, one in fought(*rows, *again)] == pytest.approx([3.0])


@pytest.mark.parametrize("changes", [{"settled": False}, {"pressure": 0.5}])
@pytest.mark.parametrize("side", [0, 1])
def test_a_suspect_pair_is_left_out_and_counted(changes: dict[str, Any], side: int) -> None:
    rows = [measured(SQUARE, name, 1e-3) for name in ("cublas", "triton")]
    rows[side] = dataclasses.replace(rows[side], **changes)
    assert duels(run_of(*rows), "cold") == ([], 1)
    if not side:  # another library stands in
        ((*_, one),) = fought(*rows, measured(SQUARE, "cublaslt", 2e-3))
        assert (one.opponent, one.value) == ("cublaslt", 2.0)


@pytest.mark.parametrize("changes", [{"status": "wrong"}, {"median_s": None}])
def test_a_row_without_a_time_is_no_pair(changes: dict[str, Any]) -> None:
    ours = dataclasses.replace(measured(SQUARE, "triton", 1e-3), **changes)
    assert duels(run_of(measured(SQUARE, "cublas", 1e-3), ours), "cold") == ([], 0)


# --- summing up -------------------------------------------------------------------------------------


def test_duels_by_region_and_over_all_aligned_16_bit_shapes() -> None:
    shapes = {"16-bit large": (4096, 0.8), "16-bit small": (512, 1.5), "unaligned": (4095, 0.5)}
    rows = []
    for size, ratio in shapes.values():
        problem = SQUARE.model_copy(update={"m": size, "n": size})
        rows += [measured(problem, "cublas", 1e-3), measured(problem, "triton", 1e-3 / ratio)]
    rows.append(measured(SQUARE, "triton-tma", 5e-4))
    found = {(each.region, each.implementation): each for each in duels(run_of(*rows), "cold")[0]}
    assert [*found] == [
        *(("16-bit large", "triton"), ("16-bit large", "triton-tma"), ("16-bit small", "triton")),
        *(("unaligned", "triton"), ("16-bit, all aligned", "triton"), ("16-bit, all aligned", "triton-tma")),
    ]
    every = found["16-bit, all aligned", "triton"]
    assert [one.value for one in every.figures] == pytest.approx([0.8, 1.5])
    assert every.mean == pytest.approx((0.8 * 1.5) ** 0.5) and every.median == pytest.approx(1.15)


def test_an_interval_that_includes_1_is_neither_ahead_nor_behind() -> None:
    ends = ((0.9, 0.99), (0.96, 1.0), (1.0, 1.04), (1.01, 1.2))
    cases = tuple(CaseFigure((low * high) ** 0.5, low, high, "", "{}") for low, high in ends)
    one = Standing("gemm", "", "16-bit large", "triton", cases)
    assert (one.ahead, one.behind) == (0.25, 0.25)
    assert (one.least, one.most) == (cases[0].value, cases[-1].value)


def test_shares_of_a_copy_and_ratios_by_hand() -> None:
    rows = [
        *(reaching(LARGE, "aten", 0.5), reaching(LARGE, "inductor", 0.6), reaching(LARGE, "triton", 0.9)),
        *(reaching(LARGE, "triton-other", 0.3), reaching(SMALL, "aten", 0.4)),
        reaching(SMALL.model_copy(update={"length": 1 << 19}), "aten", 0.2),
    ]
    found = [
        (of.region, of.implementation, [one.value for one in of.figures], against and against.median)
        for of, against in efficiencies(run_of(*rows))
    ]
    assert found == [
        ("<= 1/2 cache", "aten", pytest.approx([0.2, 0.4]), None),
        ("> 4 x cache", "aten", pytest.approx([0.5]), None),
        ("> 4 x cache", "inductor", pytest.approx([0.6]), None),
        ("> 4 x cache", "triton", pytest.approx([0.9]), pytest.approx(1.5)),
        ("> 4 x cache", "triton-other", pytest.approx([0.3]), pytest.approx(0.5)),
    ]
    assert {(of.operator, of.kind) for of, _ in efficiencies(run_of(*rows))} == {("stream", "float32 copy")}


@pytest.mark.parametrize(
    ("share", "changes"),
    [
        (1.2, {}),  # above the roof
        *((0.5, changes) for changes in ({"cache": "warm"}, {"status": "wrong"}, {"median_s": None})),
        *((0.5, changes) for changes in ({"rate": "flop"}, {"settled": False}, {"role": "roof"})),
    ],
)
def test_what_proves_nothing_is_no_efficiency(share: float, changes: dict[str, Any]) -> None:
    row_of = dataclasses.replace(reaching(LARGE, "triton", share), **changes)
    assert list(efficiencies(run_of(row_of))) == []
    assert len(list(efficiencies(run_of(reaching(LARGE, "triton", 0.5))))) == 1


def test_copies_over_the_link_to_the_host_are_not_held_against_memory() -> None:
    over_the_link = Transfer(direction="device-to-host", memory="pinned", length=1 << 24, dtype="float32")
    assert list(efficiencies(run_of(reaching(over_the_link, "aten", 0.01)))) == []


def test_regions_by_hand() -> None:
    found = [region(byte, 100) for byte in (1, 50, 51, 400, 401)]
    assert found == ["<= 1/2 cache"] * 2 + ["<= 4 x cache"] * 2 + ["> 4 x cache"]


# --- regions of shapes of a GEMM: their edges, and alignment by the operator's own count of bytes -----


def place(m: int, n: int, k: int, dtype: Dtype = "float16", layout: Any = "NN", pitch: Any = "tight") -> str:
    return gemm_region(Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout, pitch=pitch).parameters())


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((4096, 4096, 1024), "16-bit large"),
        ((4096, 4088, 1024), "16-bit other"),
        ((4096, 4096, 1016), "16-bit other"),
        ((4096, 4096, 520), "16-bit other"),
        ((4096, 4096, 512), "16-bit large, short K"),
        ((8192, 8192, 32), "16-bit large, short K"),
        ((4088, 4088, 8192), "16-bit middle"),
        ((1032, 1032, 64), "16-bit middle"),
        ((1032, 1024, 64), "16-bit other"),
        ((1024, 1024, 8192), "16-bit small"),
        ((64, 64, 64), "16-bit small"),
        ((64, 4096, 4096), "16-bit decode"),
        ((4096, 64, 4096), "16-bit decode"),
        ((4096, 1, 8192), "16-bit decode"),
        ((4096, 72, 4096), "16-bit other"),
        ((4088, 64, 4096), "16-bit other"),
        ((4096, 64, 4088), "16-bit other"),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_regions(shape: tuple[int, int, int], wanted: str, dtype: Dtype) -> None:
    assert place(*shape, dtype) == wanted


@pytest.mark.parametrize(
    ("dtype", "layout", "large", "other"),
    [
        ("float8_e4m3", "TN", "float8 TN large", "float8 other"),
        ("float8_e4m3", "NN", "float8 other", "float8 other"),
        ("int8", "TN", "int8 TN large", "int8 other"),
        ("int8", "NT", "int8 other", "int8 other"),
        ("tf32", "TN", "tf32 TN large", "tf32 other"),
        ("tf32", "NN", "tf32 other", "tf32 other"),
        ("float32", "NN", "float32 large", "float32 other"),
        ("float64", "NN", "float64", "float64"),
        ("float8_e5m2", "TN", "float8 TN large", "float8 other"),
        ("mxfp8", "TN", "mxfp8 large", "mxfp8 other"),
        ("nvfp4", "TN", "nvfp4 large", "nvfp4 other"),
    ],
)
def test_other_regions(dtype: Dtype, layout: str, large: str, other: str) -> None:
    assert place(4096, 4096, 1024, dtype, layout) == large
    for small in ((4064, 4096, 1024), (4096, 4064, 1024), (4096, 4096, 992)):
        assert place(*small, dtype, layout) == other


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", Gemm.implementation("triton").dtypes)
def test_unaligned_is_what_the_problem_says_of_its_rows(dtype: Dtype, layout: Any) -> None:
    """One more element in each size: the rows' bytes, by the operator's own count, decide."""
    unaligned = 0
    for m, n, k in [(4096 + a, 4096 + b, 4096 + c) for a in (0, 4, 8) for b in (0, 1) for c in (0, 1, 8)]:
        problem = Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout)
        wanted = any(byte % 16 for byte in problem.row_byte())
        assert (place(m, n, k, dtype, layout) == "unaligned") is wanted, problem
        assert place(m, n, k, dtype, layout, "padded") != "unaligned"
        unaligned += wanted
    assert unaligned


# --- the commands -----------------------------------------------------------------------------------


def said(command: str, *paths: Path) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, [command, *map(str, paths)])
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_duel(tmp_path: Path) -> None:
    rows = []
    for k, share in ((4096, 0.9), (2048, 1.1), (1024, 0.7), (8192, 1.2), (16384, 0.8)):
        problem = SQUARE.model_copy(update={"k": k})
        rows += [measured(problem, "cublas", 1e-2), measured(problem, "triton", 1e-2 / share)]
    odd = Gemm(m=4095, n=4096, k=64, dtype="float16", layout="NT", pitch="tight", beta=1)
    rows += [measured(odd, "cublas", 1e-3), measured(odd, "triton", 1.6e-3, low_s=None)]
    doubtful = SQUARE.model_copy(update={"n": 128})
    rows += [measured(doubtful, name, 1e-3, settled=False) for name in ("cublas", "triton")]
    rows += [dataclasses.replace(one, cache="warm") for one in rows[:2]]
    code, lines, _ = said("duel", parquet.write(tmp_path / "run.parquet", rows))
    assert code == 0
    assert "h100-sxm 2026-11-21T10-00-00Z-4f2a91c, cold cache" in lines[0]
    assert lines[1] == "not compared: 1 pair in which a time is suspect"
    tables = [line.split() for line in lines]
    large = next(words for words in tables if words[:3] == ["16-bit", "large", "triton"])
    wanted = goal_of("16-bit large", H100.facts["device_name"])
    assert wanted is not None and large[3:6] == ["5", *wanted.bars.split()]
    mean = (0.9 * 1.1 * 0.7 * 1.2 * 0.8) ** 0.2
    assert large[6:] == ["0.900", "0.700", f"{mean:.3f}", "40", "%", "60", "%"]
    (every,) = [words for words in tables if words[:3] == ["16-bit,", "all", "aligned"] and words[4] == "5"]
    assert every[5:8] == ["0.900", "0.700", f"{mean:.3f}"]
    cold = lines[: next(i for i, line in enumerate(lines) if "warm cache" in line)]
    worst = [line for line in cold if line.split()[:2] == ["16-bit", "large"] and "cublas" in line]
    assert [line.split()[3] for line in worst] == ["0.700", "0.800", "0.900"]
    assert worst[0].endswith("gemm/mine-triton-float16-NN-m4096-n4096-k1024-cold")
    (line,) = (line for line in cold if line.endswith("-NT-m4095-n4096-k64-beta1-cold"))
    assert line.split()[1:5] == ["triton", "0.625", "unknown", "cublas"]
    unaligned = next(words for words in tables if words[:2] == ["unaligned", "triton"])
    assert unaligned[2:6] == ["1", "0.90", "(0.60)", "0.625"]


def test_a_duel_without_a_pair_is_one_sentence(tmp_path: Path) -> None:
    theirs, ours = measured(SQUARE, "cublas", 1e-3), measured(SQUARE, "triton", 1e-3, run_id="another")
    files = [parquet.write(tmp_path / f"{one.implementation}.parquet", [one]) for one in (theirs, ours)]
    code, lines, refused = said("duel", *files)
    assert code == 2 and not lines and refused.count("\n") == 1
    assert "no GEMM was timed by both triton and a cuBLAS" in refused


def test_efficiency(tmp_path: Path) -> None:
    rows = run_of(reaching(LARGE, "aten", 0.5), reaching(LARGE, "triton", 0.6)).rows
    code, lines, _ = said("efficiency", parquet.write(tmp_path / "run.parquet", list(rows)))
    (line,) = [line for line in lines if " triton " in line]
    assert code == 0 and line.split()[:2] == ["stream", "float32"] and line.endswith("1.20")
    code, _, refused = said("efficiency", parquet.write(tmp_path / "without.parquet", [rows[-1]]))
    assert code == 2 and "measured no bandwidth of a copy" in refused
