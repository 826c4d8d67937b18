"""Reading a captured graph, from a CUDA driver compiled here."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.device.cuda_driver import CudaError
from bench.worker.clock import GraphClock
from bench.worker.graph_kernels import kernels
from tests.bench.simulated import SimulatedCuda

LIBCUDA = Path(__file__).with_name("libcuda_graphs.c")


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., str]:
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc to compile a driver with")

    def make(*defines: str) -> str:
        library = tmp_path / f"libcuda-{len(list(tmp_path.iterdir()))}.so"
        subprocess.run([compiler, "-shared", "-fPIC", *defines, LIBCUDA, "-o", library], check=True)
        return str(library)

    return make


def test_every_kernel_is_told_with_its_grid(driver: Callable[..., str]) -> None:
    """As far as the driver knows its name; many are counted."""
    assert kernels(4096, driver("-DNODES=5")) == (
        "gemm_128x256 grid 132x2x1 block 384; memset; copy; reduce grid 132x2x1 block 384"
    )
    assert kernels(4096, driver("-DNODES=1", "-DOLD")) == "? grid 132x2x1 block 384"
    many = kernels(4096, driver("-DNODES=30"))
    assert many.count(";") == 8 and many.endswith("; and 21 more")


def test_what_the_driver_refuses_is_an_error(driver: Callable[..., str]) -> None:
    with pytest.raises(CudaError, match="its CUDA driver answers cuGraphGetNodes with error 1"):
        kernels(1, driver("-DNODES=1"))
    with pytest.raises(OSError):
        kernels(4096, "no-such-library.so")


class Keeping(SimulatedCuda):
    """A simulated torch.cuda whose graphs can be looked into."""

    def CUDAGraph(self, keep_graph: bool = False) -> Any:
        graph = super().CUDAGraph()
        graph.raw_cuda_graph = lambda: 4096
        return graph


def test_the_graph_clock_tells_what_a_call_runs(driver: Callable[..., str]) -> None:
    def clock_of(cuda: SimulatedCuda) -> GraphClock:
        clock = GraphClock(cuda, cuda.flush, cuda.host_now)
        clock.libcuda = driver("-DNODES=1")
        return clock

    assert clock_of(Keeping()).kernels(lambda: None) == "gemm_128x256 grid 132x2x1 block 384"
    assert clock_of(SimulatedCuda()).kernels(lambda: None) == ""  # an older torch, whose graphs cannot


def test_a_call_that_cannot_be_captured_tells_nothing() -> None:
    def call() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    cuda = Keeping()
    assert GraphClock(cuda, cuda.flush, cuda.host_now).kernels(call) == ""
