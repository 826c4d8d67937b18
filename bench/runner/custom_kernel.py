"""Custom kernels on the side of the parent: from FILE:FUNCTION to an implementation, checked before a run.

The worker alone reads the file: here it is a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, cast

from bench.causes import NEEDS_GPU
from bench.device.detect import Device
from bench.errors import UserError
from bench.format import count_text
from bench.runner.examples import check_of, cover
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import INTERPRET
from bench.spec import DeviceKind, Implementation, Problem, is_custom
from bench.sweep.load import Case, Find

WIDE_BYTE = 2048
"""The smallest awkward size of so many bytes is also compared beyond [-1, 1]: it has some rows."""
INTERPRETED = frozenset({"float64", "float32", "float16", "int8"})
"""Data types in which Triton's interpreter computes what a GPU does. It computes with the patterns
of the bits of bfloat16, and rounds 8-bit floats wrongly, without a word."""


class Untimed(UserError):
    """Custom kernels are right, and cannot be timed on this device; the message says why."""


def kernel_of(text: str, kind: type[Problem]) -> Implementation:
    """The implementation `mine:softmax` of an operator that `mine.py:softmax` names. UserError."""
    file, colon, function = text.rpartition(":")
    path = Path(file).absolute()
    if not colon or not function.isidentifier():
        raise UserError(f"--kernel {text}: give FILE:FUNCTION, such as mine.py:softmax")
    if not path.is_file():
        raise UserError(f"--kernel {text}: there is no file {file}")
    if not re.fullmatch(r"[\w.+-]+", path.stem):
        raise UserError(
            f"--kernel {text}: a file's name is part of its rows: use letters, digits and _ . + -"
        )
    devices: tuple[DeviceKind, ...] = ("cpu", "cuda")
    name, dtypes = f"{path.stem}:{function}", dict.fromkeys(kind.dtypes(), (0, 0))
    return Implementation(name, "a custom kernel", devices, dtypes, kernel=f"{path}:{function}")


def with_kernels(find: Find, operator: str, texts: Sequence[str]) -> Find:
    """`find`, but that the operator's problem also has these custom kernels. UserError."""
    if not texts:
        return find
    kind = find(operator)
    added = [kernel_of(text, kind) for text in texts]
    if len({each.name for each in added}) < len(added):
        raise UserError(f"--kernel: two of {', '.join(texts)} have one name; rename a file or a function")

    class Extended(kind):  # type: ignore[valid-type,misc]
        implementations: ClassVar[tuple[Implementation, ...]] = (*kind.implementations, *added)

    return lambda name: cast(type[Problem], Extended) if name == operator else find(name)


def compared(kind: type[Problem], device: DeviceKind) -> list[str]:
    """What custom kernels are compared with: the operator's first library on this device, and ours."""
    here = [each.name for each in kind.implementations if device in each.devices and not each.kernel]
    return list(dict.fromkeys([*here[:1], *(name for name in here if name == "triton")]))


def checked_kernels(
    cases: Sequence[Case],
    worker: WorkerSupervisor,
    device: Device,
    between: Callable[[], object] = lambda: None,
) -> Iterator[str]:
    """Check every custom kernel among the cases at awkward sizes; a line about each that is right.

    UserError for one that cannot be loaded, fails, hangs or is wrong. NotImplementedError of a kernel says
    that it does not do a size. `between` is called after each check: it raises if there is no time for more.
    A Triton kernel without a GPU is refused, or checked in Triton's interpreter if INTERPRET is set: Untimed
    is then raised at the end.
    """
    by_kernel: dict[str, list[Problem]] = {}
    for case in cases:
        if is_custom(case.implementation):
            by_kernel.setdefault(case.implementation, []).append(case.problem)
    interpreted = []
    for name, problems in by_kernel.items():
        try:
            yield _checked(name, problems, worker, device, between)
        except UserError as refusal:
            if NEEDS_GPU not in str(refusal):
                raise
            if os.environ.get(INTERPRET, "0") in ("", "0"):
                raise UserError(f"{refusal}; {INTERPRET}=1 checks it without one") from refusal
            yield _interpreted(name, problems, device)
            interpreted.append(name)
    if interpreted:
        raise Untimed(
            f"nothing is timed: {', '.join(interpreted)} ran in Triton's interpreter; a time needs a GPU"
        )


def _interpreted(name: str, problems: Sequence[Problem], device: Device) -> str:
    """As `_checked`, in Triton's interpreter. UserError for a data type in which that is wrong."""
    if wrong := sorted({problem.dtype for problem in problems} - INTERPRETED):
        right = ",".join(dtype for dtype in problems[0].dtypes() if dtype in INTERPRETED)
        raise UserError(
            f"--kernel {name}: Triton's interpreter computes {', '.join(wrong)} wrongly without a word, and "
            f"there is no GPU: check it with dtype={right}"
        )
    with closing(WorkerSupervisor(device, interprets=True)) as worker:
        return f"{_checked(name, problems, worker, device, lambda: None)}, in Triton's interpreter"


def _checked(
    name: str,
    problems: Sequence[Problem],
    worker: WorkerSupervisor,
    device: Device,
    between: Callable[[], object],
) -> str:
    operator, kind = problems[0].operator, type(problems[0])
    kernel = kind.implementation(name).kernel
    request = {"do": "awkward", "operator": operator, "implementation": name, "kernel": kernel}
    answer = worker.ask({**request, "asked": [problem.parameters() for problem in problems]})
    if "examples" not in answer:
        raise UserError(f"--kernel {name}: {answer['reason']}")
    every = [kind(**parameters) for parameters in answer["examples"]]
    able = [problem for problem in every if not problem.missing(name, device.kind, device.capability)]
    examples = [able[index] for index in cover([check_of(problem, name, device.kind) for problem in able])]
    done, fills = [], ""
    by_size = sorted(examples, key=lambda example: example.byte)
    wide = next((each for each in by_size if each.byte >= WIDE_BYTE), by_size[-1] if by_size else None)
    for example in examples:
        result = worker.check(name, example, guarded=True, ranges=example is wide)
        if result.status not in ("ok", "unsupported"):
            raise UserError(
                f"--kernel {name}: {result.status} at {operator} {example}, before anything was timed: "
                f"{result.reason}"
            )
        done += [str(example)] if result.status == "ok" else []
        fills = (result.fill or "") if example is wide else fills
        between()
    sizes = count_text(len(done), "small awkward size")
    beyond = f", at {wide} with {fills}" if fills else ""
    passed = f"; it does not do {len(examples) - len(done)} others" if len(done) < len(examples) else ""
    return f"{name} agrees with float64 at {sizes}{beyond}{passed}"
