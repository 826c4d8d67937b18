"""The types that operators and harness share: Problem, Implementation, Operator, Launch.

A *Problem* is numbers only and needs no torch, so sweeps are read, cases listed and rows predicted
without it. An *Operator* is the functions that solve such a problem on tensors.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bench.case_name import problem_name
from bench.cpp_compiler import lacking_for_cpp
from bench.errors import unknown

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "tuple[torch.Tensor, ...]"
"""A text at run time, for this module does not import torch: for annotations only."""

DeviceKind = Literal["cpu", "cuda"]
Dtype = Literal[
    "float16", "bfloat16", "tf32", "float32", "float64", "float8_e4m3", "int8",
    "float8_e5m2", "mxfp8", "nvfp4",
]  # fmt: skip
"""Data types of operands. `tf32` is float32 in memory, multiplied on tensor cores. Of the last three only
matrix products are made: kernels/gemm/number_types.py."""

ITEM_BYTE: Mapping[Dtype, int] = {
    "float16": 2,
    "bfloat16": 2,
    "tf32": 4,
    "float32": 4,
    "float64": 8,
    "float8_e4m3": 1,
    "int8": 1,
    "float8_e5m2": 1,
    "mxfp8": 1,
    "nvfp4": 1,
}
STORED_BYTE: Mapping[str, int] = {**ITEM_BYTE, "uint8": 1, "int32": 4}  # type: ignore[dict-item]
"""The same of all types that tensors of a problem have, results and scales included."""
PACKED: Mapping[str, int] = {"nvfp4": 2}
"""Elements that share a byte."""
ASKED_DATA = ("uniform", "normal", "zeros")
"""What inputs may be asked to be: uniform in [-1, 1], of the standard normal distribution, or 0."""

Capability = tuple[int, int]
"""CUDA compute capability, major and minor."""
Dtypes = Mapping[Dtype, Capability]
"""Data types that an implementation supports -> the lowest compute capability that each needs."""
Size = Annotated[int, Field(ge=1)]
"""A problem's parameter that counts something."""


class TensorSpec(NamedTuple):
    """Shape and data type of a tensor that a launch reads or writes."""

    shape: tuple[int, ...]
    dtype: str | None = None
    """None: the problem's."""
    channels_last: bool = False
    """Whether [n, c, h, w] lies in memory as [n, h, w, c]."""


Specs = Mapping[str, TensorSpec]
"""Tensors by name, in the order in which implementations take or return them."""


class Unsupported(Exception):
    """Raised while a launch is built if this implementation cannot solve this problem here; says why.

    It is for reasons that show only on the device (a library that declines). Reasons that follow from the
    problem's numbers are a `refusal`.
    """


@dataclass(frozen=True)
class Launch:
    """A kernel made ready to run: everything it needs is allocated, compiled and tuned."""

    call: Callable[[], torch.Tensor | Tensors]
    """Queues the kernel and returns the tensors that it will have written. Only this is timed."""
    outputs: Tensors = ()
    """The tensors that `call` writes, if they are allocated beforehand; empty if each call allocates anew."""
    tuning_s: float = 0.0
    """Seconds of choosing its configuration while it was built: reported, never part of a time."""
    passed_over: tuple[str, ...] = ()
    """Candidates for its configuration that do not compile, do not fit the device or cannot be captured in a
    CUDA graph, each as `configuration: reason`; and kernels that got stuck earlier, as `kernel: reason`."""
    configuration: str = ""
    """What was chosen for it, as a row shows it: a tile, an algorithm."""
    blocks: bool = False
    """Whether `call` makes the host wait until the work is done: then only the host's clock can time it."""

    @classmethod
    def of(cls, run: Callable[..., object], outputs: Tensors, *arguments: Any, **options: Any) -> Launch:
        """The launch that calls `run` with these arguments and returns the outputs that it writes."""
        written = outputs[0] if len(outputs) == 1 else outputs

        def call() -> torch.Tensor | Tensors:
            run(*arguments, **options)
            return written

        return cls(call, outputs)

    def then(self, other: Launch) -> Launch:
        """This launch, then the other, for which nothing is chosen, as one."""
        outputs = (*self.outputs, *other.outputs)

        def both() -> Tensors:
            self.call()
            other.call()
            return outputs

        return replace(self, call=both, outputs=outputs)


@dataclass(frozen=True)
class Implementation:
    """One way to solve a problem, named by what really runs, and the devices that have it.

    A CPU ignores the compute capabilities of `dtypes`.
    """

    name: str
    summary: str
    devices: tuple[DeviceKind, ...]
    dtypes: Dtypes
    cpp_on_cpu: bool = False
    """Whether on a CPU every problem is compiled from C++, which takes seconds and needs a compiler."""
    kernel: str = ""
    """FILE:FUNCTION of a custom kernel, with an absolute path; empty for those of kernels/."""
    on_request: bool = False
    """Whether it runs only where it is named."""

    def missing(self, dtype: str, device: DeviceKind, capability: Capability | None) -> str:
        """Why it cannot run this data type on such a device, as a sentence; empty if it can."""
        if device not in self.devices:
            return f"{self.name} runs on {' and '.join(self.devices)}, not on {device}"
        if dtype not in self.dtypes:
            return f"{self.name} does {', '.join(self.dtypes)}, not {dtype}"
        if device == "cpu" and dtype == "tf32":
            return f"{self.name} does tf32 on Tensor Cores, which a CPU lacks"
        if device == "cpu" and self.cpp_on_cpu and (lacking := lacking_for_cpp()):
            return f"{self.name} compiles C++ on a CPU, and there is no {lacking} here"
        lowest = self.dtypes[dtype]  # type: ignore[index]
        if device == "cuda" and capability is not None and capability < lowest:
            have, need = (".".join(map(str, c)) for c in (capability, lowest))
            return f"{self.name} does {dtype} from compute capability {need}; this device has {have}"
        return ""


def is_custom(implementation: str) -> bool:
    """Whether an implementation of this name is a custom kernel, `mine:softmax`."""
    return ":" in implementation


class Unknown(LookupError):
    """A name that does not exist. The message is a sentence with the closest name and all that do."""

    def __init__(self, kind: str, given: str, of: str, possible: Iterable[str]) -> None:
        """`kind` is what it would name (`operator`), `of` what has such names (`kernels/`)."""
        super().__init__(unknown(kind, given, of, possible))


class Problem(BaseModel, ABC):
    """One computation at one size: plain numbers, no tensors.

    A subclass's fields are the parameters that a sweep may set. A field without a default must be
    set. A validator that raises ValueError rejects impossible combinations.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    operator: ClassVar[str]
    """The name of its folder in kernels/."""
    implementations: ClassVar[tuple[Implementation, ...]]
    arithmetic: ClassVar[Literal["matrix", "vector", "link", "latency", "unbounded"]] = "vector"
    """The units of the device that do its work, and whose peak bounds it. No roofline of the device is about
    `link`, whose bytes cross the link to the host, `latency`, whose loads wait for each other, and
    `unbounded`, which caches serve or whose work is not counted."""
    rate: ClassVar[Literal["flop", "byte"]] = "byte"
    """The unit of the rate that people quote for it: FLOP/s or bytes/s."""
    added: ClassVar[Mapping[str, int | str]] = {}
    """Fields that were added after rows had been published, and their defaults, at which such a field is
    no parameter of a row, so that cases keep their names. bench/judge/frame.py has the same, to read rows."""

    dtype: Dtype

    @field_validator("dtype")
    @classmethod
    def _has_an_implementation(cls, dtype: Dtype) -> Dtype:
        if dtype not in cls.dtypes():
            raise ValueError(unknown("dtype", dtype, cls.operator, cls.dtypes()))
        return dtype

    @classmethod
    @cache  # called for each of thousands of problems
    def dtypes(cls) -> tuple[Dtype, ...]:
        """Every data type that an implementation has."""
        return tuple(dict.fromkeys(name for candidate in cls.implementations for name in candidate.dtypes))

    @property
    def item_byte(self) -> int:
        """Bytes of one element in memory."""
        return ITEM_BYTE[self.dtype]

    @property
    @abstractmethod
    def flop(self) -> int:
        """Floating-point operations of one launch, as the documents count them."""

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """The tensors that are read and those that are written; their bytes follow from it.

        A problem that counts bytes otherwise, or none, has its own `byte_read` and `byte_written` instead.
        """
        raise NotImplementedError(f"{self.operator} declares neither its tensors nor their bytes")

    def byte_of(self, *specs: TensorSpec) -> int:
        """Bytes of all these tensors."""
        return sum(math.prod(spec.shape) * STORED_BYTE[spec.dtype or self.dtype] for spec in specs)

    @property
    def byte_read(self) -> int:
        """Bytes of all inputs, each read once."""
        return self.byte_of(*self.tensors[0].values())

    @property
    def byte_written(self) -> int:
        """Bytes of all outputs, each written once."""
        return self.byte_of(*self.tensors[1].values())

    @property
    def byte(self) -> int:
        """Compulsory traffic: every input read once, every output written once."""
        return _byte(self)

    @property
    def byte_stored(self) -> int:
        """Memory that the inputs take up: more than `byte_read` where rows have gaps between them."""
        return self.byte_read

    @property
    def product(self) -> tuple[int, int, int] | None:
        """(m, n, k) if it is a matrix product of m x n elements, each a sum of k terms; None otherwise."""
        return None

    @property
    def special_functions(self) -> int:
        """Least number of exponentials, reciprocals, roots and tangents: a GPU has few units for them."""
        return 0

    def byte_moved(self, implementation: str) -> int:
        """Bytes that this implementation must move: `byte`, or more (a two-pass algorithm)."""
        again = self.byte_again(implementation)
        return self.read_once(implementation) + again + self.moved_written(implementation)

    def read_once(self, implementation: str) -> int:
        """The part of `byte_moved` that is read for the first time: the inputs, as far as they are needed."""
        return self.byte_read

    def byte_again(self, implementation: str) -> int:
        """The part of `byte_moved` that is read a second time: a cache that holds as much serves it."""
        return 0

    def moved_written(self, implementation: str) -> int:
        """The written part of `byte_moved`: more than `byte_written` if intermediate results are written."""
        return self.byte_written

    def byte_beside(self, implementation: str) -> int | None:
        """The part of `byte_moved` that is moved by kernels other than those that do the counted `flop`.

        Their time adds to that of the arithmetic. None if there are no such kernels.
        """
        return None

    def facts(self, implementation: str) -> dict[str, Any]:
        """The columns of a row that depend on the problem alone: kind, counts of one launch, sizes."""
        m, n, k = self.product or (None, None, None)
        return {
            "operator": self.operator,
            "implementation": implementation,
            "arithmetic": self.arithmetic,
            "rate": self.rate,
            "dtype": self.dtype,
            "flop": self.flop,
            "byte": self.byte,
            "byte_written": self.byte_written,
            "byte_moved": self.byte_moved(implementation),
            "byte_again": self.byte_again(implementation),
            "moved_written": self.moved_written(implementation),
            "byte_beside": self.byte_beside(implementation),
            "product_m": m,
            "product_n": n,
            "product_k": k,
            "special_functions": self.special_functions,
        }

    def refusal(self, implementation: str) -> str:
        """Why this implementation cannot solve this problem anywhere, as a sentence; empty if it can."""
        return ""

    def missing(self, implementation: str, device: DeviceKind, capability: Capability | None) -> str:
        """Why this implementation cannot solve this problem on this kind of device; empty if it can."""
        wanted = self.implementation(implementation)
        return wanted.missing(self.dtype, device, capability) or self.refusal(implementation)

    def probe(self) -> Problem:
        """A small problem of the same kind, timed first to learn whether there is time for this one."""
        return self

    def at_most(self, **limits: int) -> Self:
        """The same problem, no parameter beyond its limit."""
        return self.model_copy(update={name: min(most, getattr(self, name)) for name, most in limits.items()})

    @classmethod
    def implementation(cls, name: str) -> Implementation:
        """The implementation of that name; LookupError names those there are."""
        for candidate in cls.implementations:
            if candidate.name == name:
                return candidate
        raise Unknown("implementation", name, cls.operator, [i.name for i in cls.implementations])

    def parameters(self) -> dict[str, int | float | bool | str]:
        """Field names and values, in the order they are declared, without `added` ones at their defaults."""
        return self.model_dump(
            exclude={n for n, default in self.added.items() if getattr(self, n) == default}
        )

    def __str__(self) -> str:
        """The problem's part of the names of its cases, short and unique: `float16-NN-m64-n64-k64`."""
        return problem_name(self.parameters())


class MatrixProblem(Problem):
    """A problem that matrix units solve, and whose rate people quote in FLOP/s."""

    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"


@lru_cache(maxsize=1 << 16)  # asked several times for each of thousands of problems
def _byte(problem: Problem) -> int:
    return problem.byte_read + problem.byte_written


class Uniform(Protocol):
    """Gives a new contiguous tensor of this shape on the device, uniform in [-1, 1]; integers in -127 to 127.

    `dtype` defaults to the problem's. In a timed run the tensors are views of one random allocation.
    """

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Tensor `[*shape]`."""
        ...


Implementations = Mapping[str, Callable[..., Launch]]
"""Name -> (problem, *inputs) -> Launch. May allocate, compile and tune: none of it is timed."""


@dataclass(frozen=True)
class Operator:
    """The functions that solve one kind of problem: a folder of kernels/ exports one Operator."""

    problem: type[Problem]
    inputs: Callable[[Any, Uniform], Tensors]
    """(problem, uniform) -> the input tensors."""
    reference: Callable[..., torch.Tensor | Tensors]
    """(problem, *inputs) -> the right answer in float64, shaped as the launch's outputs."""
    implementations: Implementations
    tolerance: Callable[[Any, str], float | Sequence[float]]
    """(problem, implementation) -> the largest error its arithmetic can explain, as a fraction of the
    largest |value| of the reference, each output against its own: one for all outputs, or one for each."""
    examples: Sequence[Problem]
    """Small awkward sizes, at which the tests compare every implementation with the reference."""
    excerpt: Callable[[Any, Tensors, Tensors], tuple[Problem, Tensors, Tensors]] | None = None
    """(problem, inputs, outputs) -> a smaller problem with its inputs and that part of the outputs.

    Lets a large result be checked in reasonable time. None: the whole is checked.
    """
    counted_on_cpu: bool = False
    """Whether a launch's memory is counted on a CPU too: tensor by tensor, in one more launch each visit."""


def parameters_text(parameters: dict[str, Any]) -> str:
    """Canonical text of a problem's parameters."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"))
