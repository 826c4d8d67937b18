"""A GPU that computes nothing, in virtual time: its launches take what the model says.

The device of tests/bench/simulated.py, on whose time axis nobody waits, with the times of a datasheet's GPU:
a clock that falls as it heats, noise, a memory that fills; and a host that takes what was measured. Operators
keep their names and tolerances; their inputs, launches and references are stand-ins of one element, whose
bytes are only counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

import kernels
from bench.device.detect import Device
from bench.model import roofline, tile_wave
from bench.model.calibration import started
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.predict import stated_tile
from bench.spec import ITEM_BYTE, PACKED, Launch, Operator, Problem, Tensors, Uniform
from bench.worker.cache_ring import Arena
from kernels.tensors import stored_dtype
from tests.bench.simulated import Graph, NoTelemetry, SimulatedCuda

# ---- the host, in seconds. Measured without a GPU: our launches (a Xeon, the driver a stub), building them
# (122 to 396 us), compiling a program of Triton (0.2 to 0.6 s). The rest is assumed.
LAUNCH_S = {
    **{"inductor": 60e-6, "tma": 51e-6, "persistent": 44e-6, "split": 54e-6, "gluon": 65e-6, "triton": 38e-6},
    "": 30e-6,
}
"""Of a launch, by the first of these words that is in the implementation's name; last of all a library's."""
BUILD_S, LIBRARY_BUILD_S = 250e-6, 30e-6
SLOT_S = 40e-6
"""Drawing the inputs of a slot, poisoning its outputs and looking whether they were written."""
SYNCHRONIZE_S, REPLAY_S, NODE_S, NVML_S = 10e-6, 20e-6, 7e-6, 1e-3
"""NODE_S: making an executable graph of a captured one, for each node."""
TILE_S, QUESTION_S, FIRST_QUESTION_S, INDUCTOR_S, INDUCTOR_PRODUCT_S = 0.6, 0.5, 1.3, 2.0, 20.0
"""Compiling: a forced tile; what the tuner asks of a shape, and of a kind's first; a shape by Inductor."""
UNTUNED, LOAD_S = ("launch", "stream", "fma", "latency"), 0.05
"""Operators without a tuner; loading what was compiled, or a library, into a new process."""
BLINKS_PER_S, BLINK_S = 0.5, 2e-3
"""Interruptions of a busy host."""

# ---- the device, all of it assumed
FLOOR_S, CONTEXT_BYTE, LINK_BYTE_PER_S, LOAD_LATENCY_S = 2e-6, 1 << 29, 25e9, 6e-7
PEAK_SHARE = {"matrix": 0.75, "vector": 0.9}
"""Of the datasheet's, what the largest launches reach."""
BANDWIDTH_SHARE = {0.0: 0.93, 0.5: 0.9, 1.0: 0.88}
"""The same of the bandwidth, by the share of written bytes."""
CACHE_FACTOR = 3.0
SLOWER = {("matrix", "triton"): 1.15, ("matrix", "inductor"): 1.1}
"""Units and family of implementations -> how much longer than a library's."""
HEAVY, SMALL_BOARD_W, MEMORY_POWER = 0.4, 75.0, 0.55
"""Share of the peak that brings a device to its power limit, boards that any work does, what others draw."""
FALL, TAU_S, CLOCK_READS_HZ, CLOCK_STEP_HZ = 0.05, 0.5, 30e6, 15e6
"""Share by which the clock falls at the power limit, with which time constant; how it is read."""
SAMPLE_NOISE, LEVEL_NOISE = 0.01, 0.005
"""Standard deviations: of samples, and of the level of a visit."""


class VirtualTime:
    """What stands in for the module `time`."""

    def __init__(self, seed: int) -> None:
        self.now_s, self._chance = 0.0, random.Random(seed)

    def spend(self, seconds: float) -> None:
        """Let the host be busy, some more where it blinks."""
        blinks = self._chance.random() < seconds * BLINKS_PER_S
        self.now_s += seconds + (BLINK_S if blinks else 0.0)

    def perf_counter(self) -> float:
        """Seconds; reading them takes some."""
        self.now_s += 5e-8
        return self.now_s

    def perf_counter_ns(self) -> int:
        """The same in nanoseconds."""
        return round(1e9 * self.perf_counter())


@dataclass(frozen=True)
class Work:
    """What launches ask of the device: seconds at the full clock, and those of them that follow the clock."""

    seconds: float
    compute_s: float = 0.0
    is_heavy: bool = False


class Model:
    """What launches take on a device, by its datasheet: tiles and waves, the roofline."""

    def __init__(self, device: Device) -> None:
        sheet = device.datasheet
        assert sheet and sheet.bandwidth_byte_per_s and sheet.power_w
        self.device, self.sheet = device, sheet
        self.byte_per_s, self.is_small = sheet.bandwidth_byte_per_s, sheet.power_w <= SMALL_BOARD_W
        plain = sheet.peak_flop_per_s("vector", "float32") or 1e12
        keys = [(unit, dtype) for unit in PEAK_SHARE for dtype in ITEM_BYTE]
        self.stated = {key: sheet.peak_flop_per_s(*key) or plain for key in keys}
        peaks = {key: _ceiling(PEAK_SHARE[key[0]] * rate) for key, rate in self.stated.items()}
        rates = {written: _ceiling(share * self.byte_per_s) for written, share in BANDWIDTH_SHARE.items()}
        self.ceilings = Ceilings(launch_s=FLOOR_S, peak_flop_per_s=peaks, bandwidth_byte_per_s=rates)

    def work(self, problem: Problem, implementation: str, cache: str) -> Work:
        """One launch of an implementation; `cache`: where it finds its data."""
        if problem.arithmetic == "latency":
            return Work(FLOOR_S + LOAD_LATENCY_S * problem.steps)
        if problem.arithmetic == "link":
            return Work(FLOOR_S + problem.byte / LINK_BYTE_PER_S)
        cache_byte, moved = self.device.cache_byte, problem.byte_moved(implementation)
        again, written = problem.byte_again(implementation), problem.moved_written(implementation)
        byte, share = map(float, roofline.traffic(moved, again, written, cache_byte))
        byte /= CACHE_FACTOR if cache == "warm" and moved <= cache_byte else 1.0
        if programs := getattr(problem, "programs", None):  # one SM draws twice its share of memory
            byte *= max(1.0, self.device.sm_count / (2 * programs))
        unit = "matrix" if problem.arithmetic == "matrix" else "vector"
        beside = (problem.byte_beside(implementation) or 0) / moved if moved else 0.0
        roof = roofline.calibrated(problem.flop, byte, share, unit, problem.dtype, self.ceilings, beside)
        assert roof is not None
        of_tiles = unit == "matrix" and problem.product is not None
        seconds = max(roof.seconds, self._product_s(problem, implementation, byte) if of_tiles else 0.0)
        seconds = FLOOR_S + SLOWER.get((unit, implementation.partition("-")[0]), 1.0) * (seconds - FLOOR_S)
        compute_s = min(seconds, problem.flop / self.stated[unit, problem.dtype])
        return Work(seconds, compute_s, self.is_small or compute_s > HEAVY * seconds)

    def _product_s(self, problem: Problem, implementation: str, byte: float) -> float:
        sheet, sms, cache_byte = self.sheet, self.device.sm_count, self.device.cache_byte
        machine = started(self.ceilings, problem.dtype, sms, cache_byte, sheet)
        assert machine and problem.product
        item_byte = ITEM_BYTE[problem.dtype] / PACKED.get(problem.dtype, 1)
        numbers = (*problem.product, item_byte, byte, math.inf, 0.0)
        of = tile_wave.Products(*(np.array([number], dtype=float) for number in numbers))
        return float(tile_wave.predict(machine, of, stated_tile(implementation, "")).seconds[0])


def _ceiling(rate: float) -> Ceiling:
    return Ceiling(rate, rate, rate, "")


class SimulatedGpu(SimulatedCuda):
    """A device of a datasheet; its host's time is virtual."""

    def __init__(self, device: Device, time: VirtualTime, seed: int) -> None:
        self.device, self.time, self.model, self.chance = device, time, Model(device), random.Random(seed)
        super().__init__(device.cache_byte)
        self.heat, self.is_heavy, self.allocated = 0.0, False, 0
        """How far its clock has fallen, 0 to 1; whether it is at its power limit; bytes."""
        self.begin_visit("cold")
        self.compiled, self.loaded = set[object](), set[object]()
        """On the disk, and by this process."""

    def begin_visit(self, cache: str) -> None:
        """Launches find their data in this `cache`, warm or cold, and have a level of their own."""
        self.cache, self.level = cache, 1 + LEVEL_NOISE * self.chance.gauss(0, 1)

    @property
    def host_s(self) -> float:  # type: ignore[override]
        """The host's time: an attribute of every other simulated device."""
        return self.time.now_s

    @host_s.setter
    def host_s(self, seconds: float) -> None:
        self.time.now_s = seconds

    @property
    def clock_hz(self) -> float:
        """The clock now, hertz."""
        return (self.model.sheet.boost_clock_hz or 1e9) * (1 - FALL * self.heat)

    def seconds(self, work: Work) -> float:
        """What it takes by now; the device heats or cools meanwhile."""
        longer = work.compute_s * (1 / (1 - FALL * self.heat) - 1)
        noise = self.level * (1 + SAMPLE_NOISE * self.chance.gauss(0, 1))
        seconds = noise * (work.seconds + longer)
        self.heat += (work.is_heavy - self.heat) * (1 - math.exp(-seconds / TAU_S))
        self.is_heavy = work.is_heavy
        return seconds

    def advance(self, operation: Callable[[], float]) -> float:
        """Let the device do what was queued by now, having cooled while it had nothing to do."""
        self.heat *= math.exp(min(0.0, self.device_s - self.host_s) / TAU_S)
        return super().advance(operation)

    def move(self, byte: float, flop: float = 0.0) -> None:
        """Move bytes, or compute, by a kernel that is not timed."""
        seconds = FLOOR_S + byte / self.model.byte_per_s + flop / self.model.stated["vector", "float64"]
        self.launch(lambda: seconds)

    def flush(self) -> None:
        """Write twice the cache."""
        self.move(2 * self.device.cache_byte)

    def synchronize(self) -> None:
        """Wait until all is done."""
        super().synchronize()
        self.time.spend(SYNCHRONIZE_S)

    def CUDAGraph(self, keep_graph: bool = False) -> Graph:
        """A graph that is replayed at once; none that could be looked into."""
        return Replayed(self) if not keep_graph else super().CUDAGraph(keep_graph)

    def memory_allocated(self) -> int:
        """Bytes."""
        return self.allocated

    max_memory_allocated = memory_allocated

    def reset_peak_memory_stats(self) -> None:
        """Nothing to do: outputs are allocated beforehand."""

    def free_byte(self) -> int:
        """Bytes that can still be allocated."""
        return self.device.memory_byte - CONTEXT_BYTE - self.allocated

    def compile(self, problem: Problem, implementation: str) -> float:
        """Spend what it takes to have this program, which is tuning where it returns something."""
        family, _, rest = implementation.partition("-")
        words = [value for value in problem.parameters().values() if isinstance(value, str | bool)]
        kind, new_s, key = (problem.operator, implementation, *words), 0.0, problem
        if family == "inductor":
            new_s = INDUCTOR_PRODUCT_S if problem.product else INDUCTOR_S
        elif family == "triton" and (rest[:1].isdigit() or problem.operator in UNTUNED):
            new_s, key = TILE_S, None
        elif family == "triton":
            new_s = QUESTION_S if (kind, "kind") in self.compiled else FIRST_QUESTION_S
        else:
            kind, key = (family,), None
        if (kind, key) not in self.loaded:
            new_s *= (kind, key) not in self.compiled
            self.time.spend(LOAD_S + new_s)
        self.compiled |= {(kind, key), (kind, "kind")}
        self.loaded.add((kind, key))
        return new_s if family == "triton" else 0.0


class Kernel:
    """A launch: called, it is done, and says how long it took. Its bytes count until it is gone."""

    def __init__(self, gpu: SimulatedGpu, work: Work, outputs: Tensors, byte: int) -> None:
        if byte > gpu.free_byte():
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {byte} bytes.")
        self._gpu, self.work, self.outputs, self._byte, self._version = gpu, work, outputs, byte, -1
        gpu.allocated += byte

    def __del__(self) -> None:
        self._gpu.allocated -= getattr(self, "_byte", 0)

    @property
    def is_unwritten(self) -> bool:
        """Whether somebody else wrote its outputs last."""
        return any(output._version != self._version for output in self.outputs)

    def write(self) -> None:
        """Write the right result."""
        for output in self.outputs:
            self._version = output.fill_(1.0)._version

    def __call__(self) -> float:
        if self.is_unwritten:
            self.write()
        return self._gpu.seconds(self.work)


class Replayed(Graph):
    """A graph whose kernels, thousands of them, run as one."""

    cuda: SimulatedGpu

    def replay(self) -> None:
        """Queue it; before the first time it becomes executable."""
        kernels_of = [each for each in self.operations if isinstance(each, Kernel)]
        if not self.uploaded:
            works = [kernel.work for kernel in kernels_of]
            seconds, compute_s = sum(work.seconds for work in works), sum(work.compute_s for work in works)
            self._work = Work(seconds, compute_s, any(work.is_heavy for work in works))
            self.uploaded = True
            self.cuda.time.spend(NODE_S * len(self.operations))
        self.cuda.time.spend(REPLAY_S)
        self.cuda.advance(lambda: self.cuda.seconds(self._work))
        if kernels_of and kernels_of[0].is_unwritten:
            for kernel in kernels_of:
                kernel.write()


def stand_in(name: str, gpu: SimulatedGpu) -> Operator:
    """The operator of this name with its implementations and tolerances, on the simulated device."""
    real = kernels.operator(name)

    def inputs(problem: Problem, uniform: Uniform) -> Tensors:
        return (uniform(problem.byte_stored // stored_dtype(problem.dtype).itemsize),)

    def reference(problem: Problem, x: torch.Tensor) -> Tensors:
        # An excerpt is small; else some plain operations on all of it, in float64.
        gpu.move(problem.byte_written if real.excerpt else 64 * problem.byte / problem.item_byte)
        gpu.move(0, 0 if real.excerpt else problem.flop)
        gpu.synchronize()
        return (torch.ones(1, dtype=torch.float64),)

    def build(implementation: str, problem: Problem, x: torch.Tensor) -> Launch:
        word = next(word for word in LAUNCH_S if word in implementation)
        tuning_s = gpu.compile(problem, implementation)
        gpu.time.spend(SLOT_S + (BUILD_S if word else LIBRARY_BUILD_S))
        byte = problem.byte_written
        outputs = (torch.empty(1),) if byte else ()
        kernel = Kernel(gpu, gpu.model.work(problem, implementation, gpu.cache), outputs, byte)
        blocks = "pageable" in str(problem) or implementation in ("waiting", "emptying")

        def call() -> Tensors:
            gpu.time.spend(LAUNCH_S[word])
            gpu.launch(kernel)
            if blocks:
                gpu.synchronize()
            return outputs

        return Launch(call, outputs, tuning_s=tuning_s, blocks=blocks)

    made = {each: partial(build, each) for each in real.implementations}
    facts: dict[str, Any] = {"inputs": inputs, "reference": reference, "implementations": made}
    facts["tolerance"] = lambda *case: float(np.max(real.tolerance(*case)))  # of all outputs, here one
    return replace(real, excerpt=None, counted_on_cpu=False, **facts)


def arenas(gpu: SimulatedGpu) -> type[Arena]:
    """Arenas on this device: as large as is asked, of one element, filled in virtual time."""

    class SimulatedArena(Arena):
        def _fill(self, elements: int) -> None:
            gpu.move(2 * max(0, elements - self._filled) * self.dtype.itemsize)
            self._filled = max(self._filled, elements)

    return SimulatedArena


class HostTorch:
    """The module torch for code that makes tensors on the device: they have one element, on the host."""

    Generator = staticmethod(lambda device: torch.Generator())

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(shape: Any, dtype: torch.dtype, device: object) -> torch.Tensor:
        """A tensor of this shape in the memory of one element."""
        return torch.empty(1, dtype=dtype).expand(shape) if shape else torch.empty(shape, dtype=dtype)


class SimulatedTelemetry(NoTelemetry):
    """What NVML would say of the clock and of the power."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu

    def clock_hz(self) -> float:
        """A reading of the SM clock, hertz."""
        self._gpu.time.spend(NVML_S)
        off_hz = self._gpu.chance.uniform(-CLOCK_READS_HZ, CLOCK_READS_HZ)
        return CLOCK_STEP_HZ * round((self._gpu.clock_hz + off_hz) / CLOCK_STEP_HZ)

    def light(self) -> bool:
        """Whether the device is far from its limits."""
        self._gpu.time.spend(NVML_S)
        return not self._gpu.is_heavy

    def stop(self) -> dict[str, Any]:
        """Columns of the row."""
        heavy, limit_w = self._gpu.is_heavy, self._gpu.model.sheet.power_w or 0.0
        facts = {"sm_clock_hz": self.clock_hz(), "power_limit_w": limit_w, "held_power": float(heavy)}
        return facts | {"power_w": limit_w * (1.0 if heavy else MEMORY_POWER), "foreign_processes": 0}
