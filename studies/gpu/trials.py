"""Trials of kernels on the device: every result is compared with float64, and with the same launch's next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

import kernels
from bench.launching.ending import Stuck, await_end
from bench.spec import Launch, Problem, Unsupported, cause
from bench.worker.check import judged, outputs_of, poison, within
from studies.gpu.facts import Trials

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
    """What distinguishes it from the problem's other trials: a seed, a configuration."""
    make: Callable[[], tuple[Tensors, Launch]]
    """Its inputs and its launch. Raises Unsupported, with the reason, where the device cannot run it."""

    def __str__(self) -> str:
        """The problem, and what is special about this trial."""
        return f"{self.problem} {self.what}"


class Wrong(Exception):
    """A result that is not right, or not the same when repeated."""


def tried(trials: Iterable[Trial], until_s: float, repeats: bool = False) -> Trials:
    """The outcome of those trials that begin before `time.monotonic()` is `until_s`.

    With `repeats` each is launched twice, and the results must agree in every bit.
    """
    outcome = Trials()
    for trial in trials:
        if time.monotonic() > until_s:
            break
        try:
            right = f"{trial}: {_right(trial, repeats)}"
        except Stuck as stuck:
            outcome.broken = f"{trial}: {stuck}"
            break
        except Unsupported as reason:
            outcome.refused.append(f"{trial}: {reason}")
            continue
        except Wrong as error:
            outcome.wrong.append(f"{trial}: {error}")
        except Exception as error:  # whatever a compiler raises, or a launch
            if not _still_computes():
                outcome.broken = f"{trial}: {cause(error)}"
                break
            outcome.wrong.append(f"{trial}: {cause(error)}")
        else:
            outcome.right.append(right)
        shape = f"{trial.problem.operator} {trial.problem}"
        if shape not in outcome.shapes:
            outcome.shapes.append(shape)
    return outcome


def _right(trial: Trial, repeats: bool) -> str:
    """The error of the result, in words; Wrong if it is not right."""
    inputs, launch = trial.make()
    outputs = _launched(launch)
    operator = kernels.operator(trial.problem.operator)
    error, allowed = judged(operator, trial.implementation, trial.problem, inputs, outputs)
    text = f"error {error:.1e}, allowed {allowed:.1e}"
    if not within(error, allowed):
        raise Wrong(text)
    if repeats:
        before = [_bits(output).clone() for output in outputs]
        again = [_bits(output) for output in _launched(launch)]
        differing = sum(int((a != b).sum()) for a, b in zip(before, again, strict=True))
        if differing:
            raise Wrong(f"{differing} bytes are others the second time")
    return text


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
