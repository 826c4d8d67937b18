"""The rehearsal: the real parent and worker on a simulated GPU refuse nothing that it can run."""

from __future__ import annotations

from pathlib import Path

from bench.runner.options import Options
from studies.rehearsal import gpu_named, rehearsed

PRODUCTS = [f"gemm/intensity_n-cublas-float16-NN-m8192-n{n}-k8192-cold" for n in (1, 1024)]
"""At a launch's length their rates are 3 GFLOP/s and 1 PFLOP/s: neither says how long the other takes."""


def test_a_thin_product_a_large_one_and_their_ceilings_are_not_refused(tmp_path: Path) -> None:
    options = Options(sweeps=["gemm/intensity_n"], cases=PRODUCTS, budget="120", results=tmp_path)
    made = rehearsed(gpu_named("h100_sxm5"), options)
    assert not made.bugs
    assert [made.counts[f">{what}"] for what in ("refused", "left out", "failed")] == ["0", "0", "0"]
    assert int(made.counts[">timed"]) > 10
