"""Runs a Gluon kernel without a GPU: its own Python, on real numbers, in an order that a seed decides.

Triton has no interpreter for Gluon. `emulate` calls the kernel's Python function, and those that it calls,
with Gluon's functions replaced by ours (gluon_language.py). The partitions of `warp_specialize` and the
blocks of a cluster run side by side, a step at a time; copies and products end when the scheduler lets them.
What relies on an order that the hardware does not promise raises a Fault (gluon_machine.py), in words.

**Not modelled.** Layouts of registers and swizzles of shared memory: only shapes, and which block has which
part. The warps of one partition, which go in step here; compiled, `bar.sync` before every arrival, copy and
store keeps them so. Fences of tensor memory, and between reads by registers and later copies into the same
shared memory, which the compiler or the barrier between them provides. Whether registers suffice. Clusters of
more than two blocks. Programs run one after another: they share nothing but tensors that they only read, and
D, of which each element is written once.
"""

from __future__ import annotations

import random
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.jit import JITFunction

from tests.kernels.gluon_agents import Agent, Launch, stuck
from tests.kernels.gluon_language import STANDS_FOR
from tests.kernels.gluon_machine import Async, Fault
from tests.kernels.gluon_memory import NAMES, Block, Descriptor, Pointer, Traffic


@dataclass
class Emulated:
    """What a launch did."""

    launches: list[Launch]
    """One cluster's each, with all steps of its partitions."""
    traffic: Traffic


def emulate(kernel: Any, grid: int, arguments: Mapping[str, Any], seed: int) -> Emulated:
    """Run this kernel's programs one after another, each in an order drawn from the seed.

    `arguments` are those of a launch, `num_warps` and `num_ctas` among them. Raises Fault.
    """
    done = Emulated([], Traffic())
    ctas, warps = arguments.get("num_ctas", 1), arguments.get("num_warps", 4)
    passed = {
        name: _argument(value, done.traffic)
        for name, value in arguments.items()
        if name not in ("num_ctas", "num_warps", "maxnreg")
    }
    body = Translation()(kernel)
    for program in range(grid):
        launch = Launch((program, 0, 0), (grid, 1, 1), ctas, done.traffic)
        for cta in range(ctas):
            launch.agent("the kernel", cta, warps, lambda: body(**passed))
            launch.machine.life[cta], launch.machine.arrived[cta] = 1, 0
        run(launch, random.Random(f"{seed} {program}"))
        done.launches.append(launch)
    written = [one for one in passed.values() if isinstance(one, Descriptor)]
    if any(int(one.writes.max()) > 1 for one in written):
        raise Fault("an element is written more than once")
    return done


def _argument(value: Any, traffic: Traffic) -> Any:
    if isinstance(value, TensorDescriptor):
        block = Block(list(value.block_shape), NAMES[value.base.dtype])
        return Descriptor(value.base, list(value.shape), list(value.strides), block, value.layout, traffic)
    return Pointer(value) if isinstance(value, torch.Tensor) else value


def run(launch: Launch, chance: random.Random) -> None:
    """Let the launch's partitions and operations go on until all ended, one at a time as chance decides."""
    weights: dict[Any, float] = {}

    def weight(of: Any) -> float:
        # Some partitions and engines much slower than others, others in other runs.
        return weights.setdefault(of, 10 ** chance.uniform(-2, 1))

    try:
        while True:
            alive = [agent for agent in launch.agents if launch.machine.life.get(agent.number) == 1]
            for agent in alive:
                if agent.asked is None:
                    agent.go_on()
            asked = [(agent, agent.asked) for agent in alive if agent.asked is not None]
            able: list[Agent | Async] = [
                agent for agent, step in asked if not launch.machine.blocked(agent.number, step)
            ]
            able += launch.machine.ready()
            if not able:
                break
            each = [
                weight(one.number if isinstance(one, Agent) else (one.engine, one.ident[0])) for one in able
            ]
            _happen(launch, chance.choices(able, each)[0])
        if asked:
            raise Fault(stuck(launch.machine, asked))
    finally:
        for agent in launch.agents:
            agent.stop()


def _happen(launch: Launch, one: Agent | Async) -> None:
    if isinstance(one, Async):
        launch.machine.end(one)
        one.effect()
        return
    step = one.asked
    assert step is not None
    launch.machine.apply(one.number, step)
    one.steps.append(step)
    if step.kind != "end":
        one.go_on()


class Translation:
    """Python functions like a kernel's, but calling ours in place of Gluon's."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if id(value) in STANDS_FOR:
            return STANDS_FOR[id(value)]
        if isinstance(value, gl.constexpr):
            return self(value.value)
        if isinstance(value, JITFunction):
            return self._function(value.fn)
        if isinstance(value, types.ModuleType) and value.__name__.startswith("triton."):
            return _Module(value, self)
        if isinstance(value, types.FunctionType) and getattr(value, "__triton_builtin__", False):
            return _missing(value)
        return value

    def _function(self, original: Any) -> Any:
        if id(original) not in self._made:
            code, found = original.__code__, original.__globals__
            scope: dict[str, Any] = {"__builtins__": __builtins__}
            closure = original.__closure__ and tuple(types.CellType() for _ in original.__closure__)
            copy = types.FunctionType(code, scope, original.__name__, original.__defaults__, closure)
            copy.__kwdefaults__ = original.__kwdefaults__
            self._made[id(original)] = copy
            for name in _names(code):
                if name in found:
                    scope[name] = self(found[name])
            for ours, theirs in zip(closure or (), original.__closure__ or (), strict=True):
                ours.cell_contents = self(theirs.cell_contents)
        return self._made[id(original)]


def _names(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))


class _Module:
    """A module of Triton's, whose functions are ours."""

    def __init__(self, real: types.ModuleType, translate: Translation) -> None:
        self._real, self._translate = real, translate

    def __getattr__(self, name: str) -> Any:
        return self._translate(getattr(self._real, name))


def _missing(value: Any) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{value.__module__}.{value.__qualname__} is not emulated")

    return call
