"""Ours against the library: the ratio by hand, what its interval covers, and which goal a shape has."""

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.judge.duel import Duel, Standing, duels, goal, ratio, standings
from bench.judge.frame import runs
from bench.judge.gemm_regions import region
from bench.sampling.protocol import protocol
from bench.sampling.publish import interval
from bench.spec import Dtype
from bench.store import parquet
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from tests.plots.synthetic import H100, row

SQUARE = Gemm(m=4096, n=4096, k=4096, dtype="float16")


def timed(problem: Gemm, implementation: str, samples_s: list[float], **changes: Any) -> Measurement:
    """A row with these samples; its interval is the protocol's."""
    median_s, low_s, high_s = interval(samples_s, protocol("cuda"))
    facts = {"median_s": median_s, "low_s": low_s, "high_s": high_s, "samples_s": samples_s}
    return row(H100, "gemm/mine", problem, implementation, **(facts | changes))


def about(seconds: float, *, count: int = 40) -> list[float]:
    """Samples of 1 % noise whose median is exactly this."""
    noise = random.Random(f"{seconds} {count}")
    drawn = [seconds * noise.gauss(1, 0.01) for _ in range(count)]
    median = float(np.median(drawn))
    return [one * seconds / median for one in drawn]


def fought(*rows: Measurement) -> list[Duel]:
    return fought_or_left_out(*rows)[0]


def fought_or_left_out(*rows: Measurement) -> tuple[list[Duel], int]:
    (run,) = runs(rows)
    return duels(run, "cold")


# --- the ratio --------------------------------------------------------------------------------------


def test_the_ratio_by_hand() -> None:
    (one,) = fought(timed(SQUARE, "cublas", about(3e-3)), timed(SQUARE, "triton", about(2e-3)))
    assert one.ratio == pytest.approx(1.5)
    assert 1.48 < one.low < 1.5 < one.high < 1.52
    assert (one.implementation, one.library, one.region) == ("triton", "cublas", "16-bit large")
    assert one.name == "gemm/mine-triton-float16-NN-m4096-n4096-k4096-cold"
    (slower,) = fought(timed(SQUARE, "cublas", about(2e-3)), timed(SQUARE, "triton", about(3e-3)))
    assert slower.ratio == pytest.approx(1 / 1.5) and slower.high < 1


def test_the_rows_own_intervals_add_as_squares() -> None:
    theirs = timed(SQUARE, "cublas", [3.0] * 20, low_s=3.0 / 1.03, high_s=3.0 * 1.01)
    ours = timed(SQUARE, "triton", [2.0] * 20, low_s=2.0 / 1.02, high_s=2.0 * 1.04)
    middle, low, high = ratio(theirs, ours)
    assert middle == 1.5
    assert math.log(middle / low) == pytest.approx(math.hypot(math.log(1.03), math.log(1.04)))
    assert math.log(high / middle) == pytest.approx(math.hypot(math.log(1.01), math.log(1.02)))


@pytest.mark.parametrize("end", ["low_s", "high_s"])
@pytest.mark.parametrize("unknown", [None, math.nan, "median"])
def test_an_interval_that_is_not_known_decides_nothing(end: str, unknown: Any) -> None:
    """Either end of ours, or of theirs, leaves one end of the ratio open; a median is no end."""
    theirs, ours = about(3.0), about(2.0)
    of_theirs, of_ours = (float(np.median(s)) if unknown == "median" else unknown for s in (theirs, ours))
    ends = [
        ratio(timed(SQUARE, "cublas", theirs), timed(SQUARE, "triton", ours, **{end: of_ours})),
        ratio(timed(SQUARE, "cublas", theirs, **{end: of_theirs}), timed(SQUARE, "triton", ours)),
    ]
    open_ends = [(low == 0.0, high == math.inf) for _, low, high in ends]
    assert open_ends == ([(False, True), (True, False)] if end == "low_s" else [(True, False), (False, True)])


def test_samples_that_drift_together_are_not_taken_for_many() -> None:
    """True ratio 1, 100 times: neighbours alike (0.9), as where a clock wanders."""
    chance = np.random.default_rng(7)

    def drifting() -> Measurement:
        steps = chance.standard_normal(400)
        for i in range(1, 400):
            steps[i] += 0.9 * steps[i - 1]
        return timed(SQUARE, "triton", list(1 + 0.005 * steps[200:]))

    held = [low <= 1 <= high for _, low, high in (ratio(drifting(), drifting()) for _ in range(100))]
    assert sum(held) >= 88


# --- which rows meet --------------------------------------------------------------------------------


def test_cublas_comes_before_cublaslt_and_variants_of_ours_each_fight() -> None:
    rows = [timed(SQUARE, name, about(1e-3)) for name in ("cublaslt", "triton-split-k", "triton", "inductor")]
    assert [(one.implementation, one.library) for one in fought(*rows)] == [
        ("triton", "cublaslt"),
        ("triton-split-k", "cublaslt"),
    ]
    assert {one.library for one in fought(*rows, timed(SQUARE, "cublas", about(1e-3)))} == {"cublas"}
    assert not fought(*(timed(SQUARE, name, about(1e-3)) for name in ("triton", "inductor", "cublaslt-best")))


@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_types_with_scales_for_blocks_meet_cublas_in_regions_of_their_own(dtype: Dtype) -> None:
    large = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout="TN")
    small = large.model_copy(update={"m": 1024})
    rows = [timed(one, "cublas", about(3e-3)) for one in (large, small)]
    rows += [timed(one, "triton-gluon", about(2e-3)) for one in (large, small)]
    other = large.model_copy(update={"dtype": "float8_e4m3"})
    found = fought(*rows, timed(other, "triton-gluon", about(1e-3)))
    assert [(one.implementation, one.library, one.region) for one in found] == [
        ("triton-gluon", "cublas", f"{dtype} other"),
        ("triton-gluon", "cublas", f"{dtype} large"),
    ]
    assert [one.ratio for one in found] == pytest.approx([1.5, 1.5])
    assert {one.region for one in standings(found)} == {f"{dtype} large", f"{dtype} other"}


def test_only_the_same_problem_is_compared_whatever_the_sweep() -> None:
    theirs = timed(SQUARE, "cublas", about(1e-3), sweep="gemm/other")
    ours = timed(SQUARE, "triton", about(1e-3))
    assert len(fought(theirs, ours)) == 1
    for change in ({"k": 2048}, {"layout": "TN"}, {"dtype": "bfloat16"}, {"beta": 1}, {"pitch": "padded"}):
        other = timed(SQUARE.model_copy(update=change), "triton", about(1e-3))
        assert fought_or_left_out(theirs, other) == ([], 0)


def test_the_later_row_of_one_problem_stands() -> None:
    rows = [timed(SQUARE, "cublas", about(s), sweep=f"gemm/{s}") for s in (1e-3, 3e-3)]
    rows.append(timed(SQUARE, "triton", about(1e-3)))
    assert [one.ratio for one in fought(*rows)] == pytest.approx([3.0])
    again = timed(SQUARE, "cublas", about(9e-3), visit=1)
    assert [one.ratio for one in fought(*rows, again)] == pytest.approx([3.0])
    doubtful = timed(SQUARE, "cublas", about(9e-3), settled=False)
    assert [one.ratio for one in fought(*rows, doubtful)] == pytest.approx([3.0])


@pytest.mark.parametrize("changes", [{"settled": False}, {"pressure": 0.5}, {"samples_s": None}])
@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_that_proves_nothing_is_left_out_and_counted(changes: dict[str, Any], side: int) -> None:
    rows = [timed(SQUARE, name, about(1e-3)) for name in ("cublas", "triton")]
    assert len(fought(*rows)) == 1
    rows[side] = dataclasses.replace(rows[side], **changes)
    assert fought_or_left_out(*rows) == ([], 1)


@pytest.mark.parametrize("changes", [{"status": "wrong"}, {"median_s": None}])
def test_a_row_without_a_time_is_no_pair(changes: dict[str, Any]) -> None:
    ours = dataclasses.replace(timed(SQUARE, "triton", about(1e-3)), **changes)
    assert fought_or_left_out(timed(SQUARE, "cublas", about(1e-3)), ours) == ([], 0)


def test_a_doubtful_cublas_leaves_the_field_to_cublaslt() -> None:
    theirs = timed(SQUARE, "cublas", about(1e-3), settled=False)
    rows = [theirs, timed(SQUARE, "cublaslt", about(2e-3)), timed(SQUARE, "triton", about(1e-3))]
    (one,) = fought(*rows)
    assert (one.library, one.ratio) == ("cublaslt", pytest.approx(2.0))


def test_other_operators_have_no_duel() -> None:
    stream = Stream(kind="copy", length=2**20, dtype="float32")
    rows = [
        row(H100, "x", stream, name, samples_s=about(1e-3), median_s=1e-3) for name in ("cublas", "triton")
    ]
    assert fought_or_left_out(*rows) == ([], 0)


# --- regions and goals ------------------------------------------------------------------------------


def place(m: int, n: int, k: int, dtype: Dtype = "float16", layout: Any = "NN", pitch: Any = "tight") -> str:
    return region(Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout, pitch=pitch).parameters())


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


def test_goals() -> None:
    hopper = goal("16-bit large", "NVIDIA H100 80GB HBM3")
    assert hopper is not None and (hopper.operator, hopper.region) == ("gemm", "16-bit large")
    assert hopper == goal("16-bit large", "NVIDIA H200")
    assert goal("16-bit decode", "NVIDIA A100-SXM4-80GB") is None
    assert goal("16-bit other", "NVIDIA H200") is None and goal("16-bit, all aligned", "NVIDIA H200") is None
    assert goal("16-bit large", "NVIDIA L4") is None


# --- summing up -------------------------------------------------------------------------------------


def made(name: str, where: str, *ratios: float, half: float = 0.02) -> list[Duel]:
    text = json.dumps({"dtype": "float16", "m": 8, "n": 8, "k": 8, "layout": "NN"})
    return [Duel(name, "", "cublas", text, where, r, r - half, r + half) for r in ratios]  # type: ignore[arg-type]


def test_standings_by_hand() -> None:
    found = made("triton-tma", "16-bit large", 2.0, 0.5) + made("triton", "unaligned", 0.1)
    found += made("triton", "16-bit small", 1.01, 0.97, 1.5) + made("triton", "16-bit large", 0.8)
    by_place = {(one.region, one.implementation): one for one in standings(found)}
    assert [*by_place] == [
        ("16-bit large", "triton"),
        ("16-bit large", "triton-tma"),
        ("16-bit small", "triton"),
        ("unaligned", "triton"),
        ("16-bit, all aligned", "triton"),
        ("16-bit, all aligned", "triton-tma"),
    ]
    small = by_place["16-bit small", "triton"]
    assert [one.ratio for one in small.duels] == [0.97, 1.01, 1.5]
    assert (small.median, small.least, small.ahead) == (1.01, 0.97, pytest.approx(1 / 3))
    assert small.behind == pytest.approx(1 / 3)
    assert by_place["16-bit large", "triton-tma"].mean == pytest.approx(1.0)
    every = by_place["16-bit, all aligned", "triton"]
    assert every.mean == pytest.approx((0.8 * 0.97 * 1.01 * 1.5) ** 0.25)
    assert len(every.duels) == 4


def test_an_interval_that_includes_1_is_neither_ahead_nor_behind() -> None:
    one = Standing("16-bit large", "triton", tuple(made("triton", "16-bit large", 0.98, 1.02, half=0.02)))
    assert (one.ahead, one.behind) == (0.0, 0.0)


# --- the command ------------------------------------------------------------------------------------


def said(*paths: Path) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["duel", *map(str, paths)])
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_the_command(tmp_path: Path) -> None:
    rows = []
    for k, share in ((4096, 0.9), (2048, 1.1), (1024, 0.7), (8192, 1.2), (16384, 0.8)):
        problem = SQUARE.model_copy(update={"k": k})
        rows += [timed(problem, "cublas", about(1e-2)), timed(problem, "triton", about(1e-2 / share))]
    odd = Gemm(m=4095, n=4096, k=64, dtype="float16", layout="NT", pitch="tight", beta=1)
    rows += [timed(odd, "cublas", about(1e-3)), timed(odd, "triton", about(1.6e-3))]
    doubtful = SQUARE.model_copy(update={"n": 128})
    rows += [timed(doubtful, name, about(1e-3), settled=False) for name in ("cublas", "triton")]
    rows += [dataclasses.replace(one, cache="warm") for one in rows[:2]]
    code, lines, _ = said(parquet.write(tmp_path / "run.parquet", rows))
    assert code == 0
    assert "h100-sxm 2026-11-21T10-00-00Z-4f2a91c, cold cache" in lines[0]
    assert lines[1] == "not compared: 1 pair in which a time is suspect"
    tables = [line.split() for line in lines]
    large = next(words for words in tables if words[:3] == ["16-bit", "large", "triton"])
    wanted = goal("16-bit large", H100.facts["device_name"])
    assert wanted is not None and large[3:6] == ["5", *wanted.bars.split()]
    mean = (0.9 * 1.1 * 0.7 * 1.2 * 0.8) ** 0.2
    assert large[6:] == ["0.900", "0.700", f"{mean:.3f}", "40", "%", "60", "%"]
    (every,) = [words for words in tables if words[:3] == ["16-bit,", "all", "aligned"] and words[4] == "5"]
    assert every[5:8] == ["0.900", "0.700", f"{mean:.3f}"]
    cold = lines[: next(i for i, line in enumerate(lines) if "warm cache" in line)]
    worst = [line for line in cold if line.split()[:2] == ["16-bit", "large"] and "cublas" in line]
    assert [line.split()[3] for line in worst] == ["0.700", "0.800", "0.900"]
    assert worst[0].endswith("gemm/mine-triton-float16-NN-m4096-n4096-k1024-cold")
    assert any(line.endswith("-NT-m4095-n4096-k64-beta1-cold") for line in cold)
    unaligned = next(words for words in tables if words[:2] == ["unaligned", "triton"])
    assert unaligned[2:6] == ["1", "0.90", "(0.60)", "0.625"]


def test_a_ratio_without_an_interval_says_so(tmp_path: Path) -> None:
    ends = {"low_s": None, "high_s": None}
    rows = [timed(SQUARE, "cublas", about(2.0)), timed(SQUARE, "triton", about(4.0), **ends)]
    done = CliRunner().invoke(app, ["duel", str(parquet.write(tmp_path / "run.parquet", rows))])
    assert ["triton", "0.500", "unknown", "cublas"] in [
        line.split()[-5:-1] for line in done.output.splitlines()
    ]


def test_without_a_pair_it_is_one_sentence(tmp_path: Path) -> None:
    alone = parquet.write(tmp_path / "alone.parquet", [timed(SQUARE, "triton", about(1e-3))])
    code, lines, refused = said(alone)
    assert code == 2 and not lines and refused.count("\n") == 1
    assert "no GEMM was timed by both triton and a cuBLAS" in refused
    code, _, refused = said(tmp_path / "none.parquet")
    assert code == 2 and "no such file" in refused


def test_two_runs_never_meet(tmp_path: Path) -> None:
    theirs = timed(SQUARE, "cublas", about(1e-3))
    ours = timed(SQUARE, "triton", about(1e-3), run_id="another")
    files = [parquet.write(tmp_path / f"{one.implementation}.parquet", [one]) for one in (theirs, ours)]
    assert said(*files)[0] == 2
