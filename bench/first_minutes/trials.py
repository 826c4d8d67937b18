"""Trials of kernels on the device: every result is compared with float64, and with the same launch's next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

import kernels
from bench.launching.ending import Stuck, await_end
from bench.spec import Launch, Problem, Unsupported, cause
from bench.worker.check import judged, outputs_of, poison, within

if TYPE_CHECKING:
    from bench.spec import Tensors

HANG_S = 5.0
"""A launch that has not ended by then never will: the largest here take milliseconds."""


@dataclass(frozen=True)
class Trial:
    """One launch of one problem."""

    problem: Problem
    implementation: str
    what: str
    """What tells it from the problem's other trials: a seed, a configuration."""
    make: Callable[[], tuple[Tensors, Launch]]
    """Its inputs and its launch. Raises Unsupported, with the reason, where the device cannot run it."""

    def __str__(self) -> str:
        """The problem, and what is special about this trial."""
        return f"{self.problem} {self.what}"


@dataclass
class Found:
    """What trials have shown."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """Trials that fail, or whose result is not right or not the same twice, with the errors."""
    refused: list[str] = field(default_factory=list)
    """Trials that this device or this Triton cannot run, with the reasons."""
    broken: str = ""
    """The trial that hung, or after which the device computes no more; none was made after it."""
    shapes: set[str] = field(default_factory=set)
    """The problems of which something ran."""


def tried(trials: Iterable[Trial], until_s: float, repeats: bool = False) -> Found:
    """The outcome of those trials that begin before `time.monotonic()` is `until_s`.

    With `repeats` each is launched twice, and the results must agree in every bit.
    """
    found = Found()
    for trial in trials:
        if time.monotonic() > until_s:
            break
        try:
            complaint = _complaint(trial, repeats)
        except Stuck as stuck:
            found.broken = f"{trial}: {stuck}"
            break
        except Unsupported as reason:
            found.refused.append(f"{trial}: {reason}")
            continue
        except Exception as error:  # whatever a compiler raises, or a launch
            complaint = cause(error)
            if not _still_computes():
                found.broken = f"{trial}: {complaint}"
                break
        found.shapes.add(f"{trial.problem.operator} {trial.problem}")
        if complaint:
            found.wrong.append(f"{trial}: {complaint}")
        else:
            found.right += 1
    return found


def _complaint(trial: Trial, repeats: bool) -> str:
    """The fault of the result, in words; empty if there is none."""
    inputs, launch = trial.make()
    outputs = _launched(launch)
    operator = kernels.operator(trial.problem.operator)
    error, allowed = judged(operator, trial.implementation, trial.problem, inputs, outputs)
    if not within(error, allowed):
        return f"error {error:.1e}, allowed {allowed:.1e}"
    if not repeats:
        return ""
    before = [_bits(output).clone() for output in outputs]
    again = [_bits(output) for output in _launched(launch)]
    differing = sum(int((one != other).sum()) for one, other in zip(before, again, strict=True))
    return f"{differing} bytes are others the second time" if differing else ""


def _launched(launch: Launch) -> Tensors:
    """The outputs, poisoned before. Stuck if the launch does not end."""
    poison(launch.outputs)
    outputs = outputs_of(launch.call())
    if outputs[0].is_cuda:
        await_end("the launch", HANG_S)
    return outputs


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _still_computes() -> bool:
    """Whether this process can go on: after a fault every call of CUDA raises it again."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
