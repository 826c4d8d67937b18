"""What learns best what L2 leaves: trees, a Gaussian process or gradient boosting, on the same public shapes.

    python -m studies.learners [DRAWS]

Prints the mean |predicted / measured - 1| in percent over nine GPUs (vLLM's bfloat16 tables of the package
aiconfigurator-core), with 64 and 512 calibration shapes; then, of vLLM's float8, L2 fitted to bfloat16 at
the peak that the datasheet gives float8, beside L2 fitted to its own 512 shapes. A quarter of an hour a draw.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from bench.device.datasheet import find_datasheet
from bench.judge.frame import known_runs, runs
from bench.model.calibrated_runs import Known
from bench.model.predict import products
from bench.model.residual import features, learn
from bench.store.schema import Measurement
from studies.prediction import CALIBRATION, COUNTS, MOST, drawn, public_layers
from tests.bench.machines import framed


def process(at: np.ndarray, left: np.ndarray) -> GaussianProcessRegressor:
    """Matern 3/2 with a length for each feature, all features scaled to one spread."""
    kernel = ConstantKernel(0.01, (1e-4, 1)) * Matern(np.full(at.shape[1], 3.0), (0.1, 1e3), nu=1.5)
    return GaussianProcessRegressor(kernel + WhiteKernel(0.003, (1e-5, 0.1)), normalize_y=True).fit(at, left)


def drawn_run(rows: Sequence[Measurement], count: int, draw: int) -> tuple[Known, Sequence[Measurement]]:
    """A run of the calibration shapes of a draw, and the rows to score."""
    order = drawn([(r.product_m, r.product_n, r.product_k) for r in rows], max(COUNTS), draw)  # type: ignore[misc]
    free = np.setdiff1d(np.arange(len(rows)), order)
    kept = np.random.default_rng(draw).choice(free, min(MOST, len(free)), replace=False)
    shapes = [replace(rows[i], role="calibration", sweep=CALIBRATION) for i in order[:count]]
    (known,) = known_runs(runs(shapes), find_datasheet)
    return known, [rows[i] for i in kept]


def off(predicted_s: np.ndarray, measured_s: np.ndarray) -> float:
    """Percent."""
    return 100 * float(np.mean(np.abs(predicted_s / measured_s - 1)))


def main(draws: int) -> None:
    """Both tables."""
    layers = {name: rows for name, rows in public_layers(print) if name in ("vLLM bfloat16", "vLLM fp8")}
    every = layers["vLLM bfloat16"]
    for count in COUNTS:
        found = defaultdict(list)
        for rows in every:
            for draw in range(draws):
                known, others = drawn_run(rows, count, draw)
                by, frame = known.calibrations[-1], framed(others)
                of, measured_s = products(frame), frame["median_s"].to_numpy()
                answer = by.predict(of)
                here = features(by.machine, of, answer)
                assert by.sample
                at, left = by.sample
                middle, spread = at.mean(axis=0), at.std(axis=0) + 1e-9
                learned = learn(by.sample)
                assert learned
                boosted = GradientBoostingRegressor(
                    n_estimators=200, learning_rate=0.05, subsample=0.5, random_state=0
                )
                gaussian = process((at - middle) / spread, left).predict((here - middle) / spread)
                factors = {
                    "L2": np.ones(len(measured_s)),
                    "trees": learned.correct(here).factor,
                    "Gaussian process": np.exp(gaussian),
                    "gradient boosting": np.exp(boosted.fit(at, left).predict(here)),
                }
                for name, factor in factors.items():
                    found[name].append(off(factor * answer.seconds, measured_s))
        print(count, "shapes:", ", ".join(f"{name} {np.mean(some):.2f}" for name, some in found.items()))
    of_16_bit = {rows[0].device_name: rows for rows in every}
    for rows in layers["vLLM fp8"]:
        own, others = drawn_run(rows, max(COUNTS), 0)
        other, _ = drawn_run(of_16_bit[own.device_name], max(COUNTS), 0)
        sheet, fit = own.sheet, other.calibrations[-1]
        ratio = (sheet.peak_flop_per_s("matrix", "float8_e4m3") or 0) / (
            sheet.peak_flop_per_s("matrix", "bfloat16") or 1
        )
        scaled = replace(fit, machine=replace(fit.machine, flop_per_s=ratio * fit.machine.flop_per_s))
        frame = framed(others)
        errors = (
            off(by.predict(products(frame)).seconds, frame["median_s"].to_numpy())
            for by in (scaled, own.calibrations[-1])
        )
        print(own.device_name, "float8: bfloat16's L2 at its peak {:.1f}, its own L2 {:.1f}".format(*errors))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
