"""What stands out: the largest effects beyond their intervals, and nothing where there is nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.judge.findings import findings
from bench.judge.frame import DeviceRun, runs
from bench.model.predict import reached
from bench.store.parquet import read_rows
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from tests.bench.rows import Chance, with_ends, with_interval
from tests.plots.synthetic import H100, ceilings, row


def of(*rows: Measurement) -> list[str]:
    """The findings on these rows of a run that has the ceilings of an H100."""
    return findings([judged(*rows)])


def judged(*rows: Measurement) -> DeviceRun:
    (run,) = runs([*ceilings(H100), *rows])
    return run


def at(share: float, problem: Gemm | Stream, name: str, half: float = 0.01, **facts: Any) -> Measurement:
    """A row that reached this share of its roof, its interval half wide by `half`."""
    made = row(H100, f"{problem.operator}/some", problem, name, **facts)
    made = replace(made, median_s=1.0)
    one_s = reached(made, judged(made).roof_of(made))
    assert one_s
    return with_interval(replace(made, median_s=one_s / share), half)


def copy(length: int) -> Stream:
    return Stream(kind="copy", length=length, dtype="float32")


def test_a_run_as_predicted_has_no_finding() -> None:
    assert of(*(at(0.97, copy(2**power), "aten") for power in (26, 27, 28))) == []


def test_the_kind_that_is_surely_farthest_below_its_roof() -> None:
    near = [at(0.9, copy(2**power), "aten") for power in (26, 27, 28)]
    far = [at(share, copy(2**power), "triton") for share, power in ((0.2, 26), (0.3, 27), (0.4, 28))]
    unsure = [at(0.15, copy(2**26 + 1), "inductor", half=0.8)]
    (says,) = [line for line in of(*near, *far, *unsure) if line.startswith("Farthest")]
    assert says == (
        "Farthest below its roof: stream/some by triton, float32 copy, reaches 30 % of what memory "
        "allows, the median of 20 % to 40 % in 3 cases."
    )
    # What nobody is sure of, what is suspect and what a launch decides is not said.
    assert not [line for line in of(*near, *unsure) if line.startswith("Farthest")]
    noisy = [replace(each, settled=False) for each in far]
    tiny = at(0.1, copy(64), "triton")
    assert not [line for line in of(*near, *noisy, tiny) if line.startswith("Farthest")]


def test_neighbours_whose_ratio_nobody_predicted() -> None:
    """Products of one row that are three times as fast as those of two rows, which stream the same matrix."""
    shares = {1: 0.9, 2: 0.3, 4: 0.31}
    rows = [at(share, Gemm(m=m, n=8192, k=8192, dtype="float16"), "cublas") for m, share in shares.items()]
    (says,) = [line for line in of(*rows) if line.startswith("The model's")]
    begins = "The model's largest miss: gemm/some by cublas, float16 NN, takes 3.00 times as long with m 2"
    assert says.startswith(f"{begins} as with m 1 (") and says.endswith("predicted: 1.00 times.")
    wide = [with_ends(each, 0.3, 3) for each in rows]
    assert not [line for line in of(*wide) if line.startswith("The model's")]


def test_the_case_whose_visits_differ_most(chance: Chance) -> None:
    def visited(length: int, *middles_s: float) -> Measurement:
        samples_s = [middle * chance.normal(1, 0.001) for middle in middles_s for _ in range(9)]
        return at(0.9, copy(length), "aten", samples_s=samples_s, visit_samples=[9] * len(middles_s))

    rows = [visited(2**26, 1e-3, 1.05e-3), visited(2**27, 2e-3, 3.6e-3, 2e-3), visited(2**28, 4e-3)]
    (says,) = [line for line in of(*rows) if line.startswith("What varied")]
    assert says.startswith("What varied most: stream/some-aten-float32-copy-length134217728-cold took from 2")
    assert says.endswith(" to 3.6 ms in its 3 visits.")
    assert not [line for line in of(rows[0], rows[2]) if line.startswith("What varied")]


def test_of_several_devices_the_sentence_names_its_own() -> None:
    far = at(0.2, copy(2**26), "triton")
    of_other = (*ceilings(H100), at(0.9, copy(2**26), "aten"))
    other = runs(replace(each, device="b", run_id="b") for each in of_other)
    (says,) = findings([judged(far), *other])
    assert says.startswith("Farthest below its roof (h100-sxm): ")


def test_what_is_predicted_does_not_depend_on_the_order_of_the_rows() -> None:
    """The end of a run has them in another order than its file: rows of one size must not change places."""
    path = next((Path(__file__).parents[2] / "results" / "reference" / "tour").rglob("*.parquet"))
    rows = list(read_rows(path))
    random.shuffle(rows)
    (drawn,), (filed,) = runs(rows), runs(read_rows(path))
    assert findings([drawn]) == findings([filed])
