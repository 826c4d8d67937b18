"""How long a launch takes, found before it is timed: too long is refused, too short is no time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.cli.list_cases import of_datasheet
from bench.device.datasheet import find_datasheet
from bench.runner.limits import earlier_ceilings, launch_limit_s, unless_too_quick
from bench.runner.resume import earlier_runs
from bench.spec import Launch, Operator
from bench.sweep.grammar import Cache
from bench.sweep.load import Case
from bench.worker.measure_case import measure
from bench.worker.visit import VisitResult
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from tests.bench.simulated import Doubling, SimulatedCuda, doubling, simulated_bench
from tests.bench.test_measure import run, visit, with_implementation


def test_a_launch_too_slow_is_skipped_with_its_time() -> None:
    cuda = SimulatedCuda()
    facts = run(size=64, cuda=cuda, operator=doubling(cuda, 3.0, 3.0), limits=(0.5, 1.0))
    assert facts.status == "skipped"
    assert facts.reason == "launches took 3 and 3 s here; the budget allows 1 s"


def test_what_a_small_probe_shows_to_be_hopeless_is_never_launched() -> None:
    """1 ms an element: 64 take 64 ms, a million would take a quarter of an hour."""
    cuda = SimulatedCuda()
    bench, limits = simulated_bench(cuda), (0.5, 1.0)
    for _ in range(2):
        facts = run("slow", 1 << 20, cuda=cuda, bench=bench, limits=limits, seconds_each=1e-3)
        assert facts.status == "skipped", facts
        assert "would take about 1e+03 s; the budget allows 1 s" in facts.reason
    assert cuda.largest == 64
    assert run("slow", 1 << 10, limits=limits, seconds_each=1e-7).status == "ok"


class Product(Doubling):
    """A matrix product by its count, which takes what it counts at a rate of the simulated device."""

    speed: float

    def probe(self) -> Product:
        return self.model_copy(update={"size": 256})

    @property
    def flop(self) -> int:
        return 2 * self.size**3


class HostCosts(SimulatedCuda):
    """A host that takes 25 to 65 us to queue and 10 us to wait, and now and then is interrupted."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = random.Random(seed)
        self.stall = lambda: chance.uniform(25e-6, 65e-6) + 300e-6 * (chance.random() < 0.05)

    def synchronize(self) -> None:
        super().synchronize()
        self.host_s += 10e-6


def of_products(cuda: SimulatedCuda, disturbed: Callable[[], float] = lambda: 1.0) -> Operator:
    """The operator of products; `disturbed` is how many times as long a launch takes as by itself."""

    def build(problem: Product, x: torch.Tensor) -> Launch:
        y = torch.empty_like(x)

        def kernel() -> float:
            torch.mul(x, 2, out=y)
            return disturbed() * problem.flop / problem.speed

        def call() -> torch.Tensor:
            cuda.launch(kernel)
            return y

        return Launch(call, (y,))

    return replace(with_implementation(cuda, build), problem=Product)


def product(cuda: SimulatedCuda, size: int, speed: float, budget_s: float, **more: Any) -> VisitResult:
    """What comes of one visit to a product of this side, at so many FLOP/s, in a run of this budget."""
    problem = Product(dtype="float32", size=size, speed=speed)
    asked = visit("good", problem, (0.5, launch_limit_s(budget_s)))
    return measure(simulated_bench(cuda), of_products(cuda, **more), problem, asked)


@pytest.mark.parametrize("budget_s", [60.0, 155.0, 600.0])
def test_a_host_however_slow_refuses_no_launch_of_a_quick_device(budget_s: float) -> None:
    """8192 a side at 700 TFLOP/s are 1.6 ms; what 256 a side take is queueing and waiting."""
    for seed in range(10):
        facts = product(HostCosts(seed), 8192, 7e14, budget_s)
        assert facts.status == "ok", facts.reason
        assert facts.median_s == pytest.approx(2 * 8192**3 / 7e14, rel=0.02)


@pytest.mark.parametrize(("side", "status"), [(1024, "ok"), (8192, "skipped")])
def test_a_kernel_without_a_fast_path_is_refused_by_two_readings_within_a_second(
    side: int, status: str
) -> None:
    """2 GFLOP/s: 256 a side take 17 ms, 8192 would take nine minutes, 1024 the second that there is."""
    facts = product(cuda := HostCosts(1), side, 2e9, 700.0)
    assert facts.status == status, facts.reason
    if status == "skipped":
        assert " took 0.0168 and 0.0168 s by the graph clock, 2 GFLOP/s" in facts.reason
        assert "would take about 5.5e+02 s; the budget allows 1.2 s" in facts.reason
        assert cuda.host_s < 1.0


@pytest.mark.parametrize(
    ("side", "calm_s", "factors"), [(2048, 0.7, (30.0, 33.0, 29.0, 36.0, 31.0)), (256, 0.3, (30.0, 33.0))]
)
def test_launches_that_a_neighbour_disturbed_refuse_nothing(
    side: int, calm_s: float, factors: tuple[float, ...]
) -> None:
    """The first launches take thirty times as long, of the probe or of what needs none; then it is calm."""
    disturbed = itertools.chain(factors, itertools.repeat(1.0))
    facts = product(SimulatedCuda(), side, 2 * side**3 / calm_s, 600.0, disturbed=lambda: next(disturbed))
    assert facts.status == "ok", facts.reason


def test_samples_that_a_disturbed_first_launch_made_too_short_are_longer_in_the_next_visit() -> None:
    cuda, disturbed = SimulatedCuda(), itertools.chain([1.0] * 4, [100.0] * 4, itertools.repeat(1.0))
    bench, problem = simulated_bench(cuda), Product(dtype="float32", size=64, speed=2 * 64**3 / 100e-6)
    operator = of_products(cuda, disturbed=lambda: next(disturbed))
    asked = visit("good", problem, (0.2, 1.0), cache="warm")
    short, long = (measure(bench, operator, problem, replace(asked, first=first)) for first in (True, False))
    assert (short.status, long.status) == ("ok", "ok")
    least_s = bench.protocol.least_sample_s
    assert short.launches * 100e-6 < least_s <= long.launches * 100e-6


GEMM = Gemm(m=4096, n=4096, k=4096, dtype="float16")  # 139 us at an H100's 989 TFLOP/s
COPY = Stream(kind="copy", length=1 << 26, dtype="float32")  # 160 us at its 3.35 TB/s


@pytest.mark.parametrize(
    ("problem", "cache", "median_s", "status"),
    [
        (GEMM, "warm", 140e-6, "ok"),
        (GEMM, "warm", 130e-6, "escaped"),
        (COPY, "cold", 165e-6, "ok"),
        (COPY, "cold", 150e-6, "escaped"),
        (COPY, "warm", 150e-6, "ok"),
    ],
)
def test_a_time_that_no_such_gpu_can_take_is_none(
    problem: Any, cache: Cache, median_s: float, status: str
) -> None:
    """Where no ceilings are measured: in ab and in the fixture. A CPU has no datasheet."""
    sheet = find_datasheet("NVIDIA H100 80GB HBM3")
    assert sheet is not None
    device = replace(of_datasheet(sheet), name="NVIDIA H100 80GB HBM3")
    case = Case("mine", problem.implementations[0].name, problem, cache, series="", role="measurement")
    result = VisitResult(median_s=median_s)
    found = unless_too_quick(result, case, device)
    assert found.status == status, found.reason
    assert status == "ok" or "of the datasheet's roof" in found.reason
    assert unless_too_quick(result, case, replace(device, name="AMD EPYC")) == result


XEON = Path("results/reference/cpu-intel-xeon-2-core")


@pytest.mark.parametrize(("share", "status"), [(0.95, "ok"), (1.3, "escaped")])
def test_a_cpu_is_bounded_by_the_roofs_of_its_earlier_runs(share: float, status: str) -> None:
    sheet = find_datasheet("NVIDIA H100 80GB HBM3")
    assert sheet is not None
    device = replace(of_datasheet(sheet), name="Intel Xeon")
    ceilings = earlier_ceilings(earlier_runs(XEON))
    best = max(each.bandwidth_byte_per_s[0.5].high_per_s for each in ceilings)
    case = Case("mine", "aten", COPY, "cold", series="", role="measurement")
    result = VisitResult(median_s=COPY.byte / best / share)
    found = unless_too_quick(result, case, device, ceilings)
    assert found.status == status, found.reason
