"""Speed-ups between devices: of the same problem, by the quickest of the libraries that both have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.device.datasheet import find_datasheet
from bench.judge.speedup import gains, speedups, stated_gain

PUBLIC = Path(__file__).parents[2] / "results/reference/public"


def row(device: str, implementation: str, m: int, median_s: float, **facts: Any) -> dict[str, Any]:
    """A row as far as a speed-up looks at it."""
    usual = {"operator": "gemm", "cache": "cold", "threads_asked": "all", "regime": None, "visit": 0}
    kept = {"arithmetic": "matrix", "dtype": "float16", "bound_by": "compute"}
    named = {"device": device, "implementation": implementation, "parameters": f"m={m}", "utc": "2026-01-01"}
    named |= {"median_s": median_s, "blamed": False, "source": None}
    return usual | kept | named | facts


def gained(rows: list[dict[str, Any]], base: str = "a") -> dict[str, dict[str, float]]:
    """device -> problem -> speed-up."""
    return {
        device: dict(zip(cases["parameters"], cases["speedup"], strict=True))
        for device, cases in speedups(pd.DataFrame(rows), base)
    }


def test_speed_up_is_the_base_over_the_device(chance: np.random.Generator) -> None:
    a, b = 10 ** chance.uniform(-6, -1, (2, 50))
    rows = [row(name, "lib", m, t) for name, times in (("a", a), ("b", b)) for m, t in enumerate(times, 1)]
    order = chance.permutation(len(rows))
    found = gained([rows[i] for i in order])
    assert list(found) == ["b"]
    assert found["b"] == pytest.approx({f"m={m}": a[m - 1] / b[m - 1] for m in range(1, 51)})
    (_, cases) = next(speedups(pd.DataFrame(rows), "a"))
    assert set(zip(cases["arithmetic"], cases["dtype"], strict=True)) == {("matrix", "float16")}


def test_the_quickest_of_the_libraries_that_both_have() -> None:
    rows = [row("a", "cublas", 1, 8.0), row("a", "cublaslt", 1, 6.0), row("a", "inductor", 1, 1.0)]
    rows += [row("b", "cublas", 1, 2.0), row("b", "cublaslt", 1, 3.0)]
    assert gained(rows) == {"b": {"m=1": 3.0}}  # 6 / 2: inductor ran on one of them only


def test_where_none_is_common_the_quickest_of_each() -> None:
    rows = [row("a", "onednn", 1, 8.0), row("a", "aten", 1, 9.0), row("b", "cublas", 1, 2.0)]
    # Another problem has one in common: that decides there, and there only.
    rows += [row("a", "aten", 2, 9.0), row("a", "onednn", 2, 8.0), row("b", "aten", 2, 3.0)]
    assert gained(rows) == {"b": {"m=1": 4.0, "m=2": 3.0}}


def test_our_kernels_are_no_library() -> None:
    rows = [row("a", "cublas", 1, 8.0), row("b", "cublas", 1, 4.0)]
    rows += [row(*ours, 1, 1e-3) for ours in (("a", "triton"), ("b", "triton-tma"), ("b", "triton"))]
    rows += [row("a", "triton", 2, 1.0), row("b", "triton", 2, 0.5)]
    assert gained(rows) == {"b": {"m=1": 2.0}}


@pytest.mark.parametrize(
    "differs",
    [
        *({"cache": "warm"}, {"threads_asked": "one"}, {"operator": "linear"}, {"parameters": "m=9"}),
        *({"blamed": True}, {"median_s": np.nan}, {"visit": 1}),
    ],
    ids=str,
)
def test_another_problem_or_an_unsound_time_is_no_case(differs: dict[str, Any]) -> None:
    rows = [row("a", "lib", 1, 8.0), row("b", "lib", 1, 4.0) | differs]
    rows += [row(name, "lib", 2, 4.0) for name in "ba"]
    assert gained(rows) == {"b": {"m=2": 1.0}}


def test_regimes_part_cases_where_all_rows_have_one() -> None:
    rows = [row("a", "lib", 1, 8.0, regime="sustained"), row("b", "lib", 1, 4.0, regime="boost")]
    assert gained(rows) == {"b": {}}
    rows[1]["regime"] = "sustained"
    assert gained(rows) == {"b": {"m=1": 2.0}}
    rows[1]["regime"] = None  # imported: nobody knows
    assert gained(rows) == {"b": {"m=1": 2.0}}


def test_of_two_runs_the_newer_row_stands() -> None:
    old, new = row("b", "lib", 1, 1.0, utc="2026-01-01"), row("b", "lib", 1, 4.0, utc="2026-01-02")
    for rows in ([old, new], [new, old]):
        assert gained([row("a", "lib", 1, 8.0), *rows]) == {"b": {"m=1": 2.0}}


def test_what_datasheets_promise() -> None:
    h100, h200, l4 = map(find_datasheet, ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA L4"))
    for device, bandwidth, peak in ((h200, 4.8 / 3.352, 1.0), (l4, 0.3 / 3.352, 121 / 989.4)):
        found = (stated_gain(h100, device, bound, "matrix", "bfloat16") for bound in ("memory", "compute"))
        assert tuple(found) == pytest.approx((bandwidth, peak), rel=0.01)
    for pair in ((None, h200), (h200, None)):
        assert stated_gain(*pair, "memory", "matrix", "float16") is None
    assert stated_gain(h100, h200, "compute", "matrix", "float3") is None
    assert stated_gain(h100, h200, "launch", "matrix", "float16") is None


def test_a_device_gains_the_median_with_the_middle_80_percent_and_what_is_stated() -> None:
    rows = [row("a", "lib", m, 1.0) for m in (1, 2, 3)]
    rows += [row("b", "lib", m, 1.0 / times) for m, times in ((1, 2), (2, 3), (3, 4))]
    sheet = find_datasheet("NVIDIA H100 80GB HBM3")
    (gain,) = gains(dict(speedups(pd.DataFrame(rows), "a")), "a", {"a": sheet, "b": sheet})
    assert (gain.device, gain.operator, gain.bound_by, gain.cases) == ("b", "gemm", "compute", 3)
    assert (gain.median, gain.low, gain.high, gain.stated) == pytest.approx((3.0, 2.2, 3.8, 1.0))
