"""Registers, shared and tensor memory, and tensors in global memory, as an emulated Gluon kernel sees them.

Values are real: 16-bit and 8-bit types hold what those types hold, sums are float32. Each block of a cluster
has its own share of every tensor and every allocation, which its layout's `cga_layout` names. Memory begins
as NaN and becomes NaN again while a copy is on its way into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from triton.experimental.gluon import language as gl

from tests.kernels.gluon_agents import current
from tests.kernels.gluon_machine import Fault, Region, Space

KINDS = {
    gl.float16: torch.float16,
    gl.bfloat16: torch.bfloat16,
    gl.float32: torch.float32,
    gl.float8e4nv: torch.float8_e4m3fn,
    gl.int8: torch.int8,
    gl.uint8: torch.uint8,
    gl.int32: torch.int32,
    gl.int64: torch.int64,
    gl.int1: torch.bool,
}
NAMES = {torch_type: name for name, torch_type in KINDS.items()}


def bases(layout: Any) -> list[list[int]]:
    """Where a layout puts the blocks of a cluster: one vector for each bit of a block's number."""
    while isinstance(layout, gl.SliceLayout):
        parent = bases(layout.parent)
        return [[*one[: layout.dim], *one[layout.dim + 1 :]] for one in parent]
    if isinstance(layout, gl.DistributedLinearLayout):
        # In elements; as multiples of a block's share, as the others have it.
        found = [list(one) for one in layout.block_bases]
        return [[int(x != 0) * (1 + sum(o[d] != 0 for o in found[:i])) for d, x in enumerate(one)]
                for i, one in enumerate(found)]  # fmt: skip
    return [list(one) for one in getattr(layout, "cga_layout", None) or []]


def share(shape: Sequence[int], of: Sequence[Sequence[int]], cta: int) -> list[tuple[int, int]]:
    """First index and length in each dimension of the part of a tensor that this block has."""
    parts = []
    for dim, size in enumerate(shape):
        own = size >> sum(one[dim] != 0 for one in of)
        place = 0
        for bit, one in enumerate(of):
            if cta >> bit & 1:
                place ^= one[dim]
        parts.append((place * own, own))
    return parts


@dataclass(eq=False)
class Pending:
    """The sums of a product that is under way: no value before it was waited for."""

    waited: bool = False


@dataclass(eq=False)
class Tensor:
    """A block's share of a tensor in registers, or a scalar."""

    held: torch.Tensor | None
    """None while the products under way that make it have not ended."""
    dtype: Any
    shape: list[int]
    layout: Any = None
    pending: Pending = field(default_factory=lambda: Pending(True))

    @property
    def value(self) -> torch.Tensor:
        """What it holds; a fault if a product that makes it was not waited for."""
        if not self.pending.waited:
            raise Fault("sums are used before warpgroup_mma_wait says that they are there")
        assert self.held is not None
        return self.held

    @property
    def type(self) -> Tensor:
        """As the compiler's tensors have it: what asks for `.type.layout` finds it."""
        return self

    def like(self, value: torch.Tensor, shape: Sequence[int] | None = None) -> Tensor:
        """A new value with this layout."""
        return Tensor(value, NAMES[value.dtype], list(self.shape if shape is None else shape), self.layout)

    def to(self, dtype: Any, **_: Any) -> Tensor:
        return self.like(self.value.to(KINDS[dtype]))

    def reshape(self, *shape: int) -> Tensor:
        return self.like(self._whole().reshape(shape), shape)

    def permute(self, *order: int) -> Tensor:
        return self.like(self._whole().permute(order), [self.shape[at] for at in order])

    def split(self) -> tuple[Tensor, Tensor]:
        one, two = self._whole().unbind(-1)
        return self.like(one, self.shape[:-1]), self.like(two, self.shape[:-1])

    def _whole(self) -> torch.Tensor:
        if list(self.value.shape) != self.shape:
            raise NotImplementedError("a tensor shared by blocks of a cluster is given another shape")
        return self.value

    def __getitem__(self, key: Any) -> Tensor:
        places = key if isinstance(key, tuple) else (key,)
        shape, at = [], 0
        for one in places:
            shape.append(1 if one is None else self.shape[at])
            at += one is not None
        return self.like(self.value[key], shape)

    def _with(self, other: Any, how: Callable[[Any, Any], torch.Tensor]) -> Tensor:
        mine, theirs = self.value, other.value if isinstance(other, Tensor) else other
        value = how(mine, theirs)
        if not isinstance(other, Tensor) and not value.dtype == torch.bool:
            value = value.to(mine.dtype) if mine.is_floating_point() else value
        theirs_shape = other.shape if isinstance(other, Tensor) else []
        shape = list(torch.broadcast_shapes(self.shape, theirs_shape))
        layout = self.layout if len(self.shape) == len(shape) else getattr(other, "layout", None)
        return Tensor(value, NAMES[value.dtype], shape, layout)

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, torch.add)

    def __radd__(self, other: Any) -> Tensor:
        return self + other

    def __mul__(self, other: Any) -> Tensor:
        return self._with(other, torch.mul)

    def __lt__(self, other: Any) -> Tensor:
        return self._with(other, torch.lt)


@dataclass(eq=False)
class Pointer:
    """The address of a tensor's element, or of many."""

    of: torch.Tensor
    at: Any = 0
    """Elements after its first: an integer or a Tensor of them."""

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.of, more if isinstance(self.at, int) and not self.at else self.at + more)

    def load(self, mask: Any, other: Any) -> Tensor:
        """The values; a fault if one lies outside the tensor."""
        at = self.at if isinstance(self.at, Tensor) else Tensor(torch.tensor(self.at), gl.int32, [])
        reach = 1 + sum((size - 1) * step for size, step in zip(self.of.shape, self.of.stride(), strict=True))
        wanted = torch.ones_like(at.value, dtype=torch.bool)
        if mask is not None:
            wanted = mask.value.expand(at.value.shape) if isinstance(mask, Tensor) else wanted & bool(mask)
        if bool((wanted & ((at.value < 0) | (at.value >= reach))).any()):
            raise Fault("a load by pointers reads outside its tensor")
        flat = torch.as_strided(self.of, (reach,), (1,))
        read = flat[torch.where(wanted, at.value, 0).long()]
        value = torch.where(wanted, read, torch.full_like(read, 0 if other is None else other))
        return Tensor(value, NAMES[self.of.dtype], at.shape, at.layout)


@dataclass(eq=False)
class Block:
    """What `block_type` of a descriptor says."""

    shape: list[int]
    element_ty: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element_ty.primitive_bitwidth // 8


@dataclass
class Traffic:
    """Bytes that bulk copies moved between tensors in global memory and a chip."""

    loaded: int = 0
    stored: int = 0


@dataclass(eq=False)
class Descriptor:
    """A tensor in global memory, of which blocks are copied."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    block_type: Block
    layout: Any
    traffic: Traffic
    writes: torch.Tensor = field(init=False)
    """How often each element was written."""

    def __post_init__(self) -> None:
        self.writes = torch.zeros(self.shape, dtype=torch.int8)

    @property
    def dtype(self) -> Any:
        return self.block_type.element_ty

    @property
    def block_shape(self) -> list[int]:
        return self.block_type.shape

    @property
    def nbytes_per_cta(self) -> int:
        split = math.prod(size // own for size, (_, own) in self._shares(0))
        return self.block_type.nbytes // split

    def _shares(self, cta: int) -> list[tuple[int, tuple[int, int]]]:
        return list(zip(self.block_shape, share(self.block_shape, bases(self.layout), cta), strict=True))

    def _box(self, coordinates: Sequence[int], cta: int) -> tuple[Any, Any]:
        """The part of a block inside the tensor: where in the tensor, and where in the block."""
        inside, within = [], []
        for start, size, (_, (first, own)) in zip(coordinates, self.shape, self._shares(cta), strict=True):
            low = min(max(start + first, 0), size)
            high = min(max(start + first + own, low), size)
            inside.append(slice(low, high))
            within.append(slice(low - start - first, high - start - first))
        return tuple(inside), tuple(within)

    def _whole(self) -> torch.Tensor:
        return torch.as_strided(self.base, self.shape, self.strides)

    def read(self, coordinates: Sequence[int], cta: int) -> torch.Tensor:
        """A block's share from these coordinates on, zeros outside the tensor."""
        inside, within = self._box(coordinates, cta)
        block = torch.zeros([own for _, (_, own) in self._shares(cta)], dtype=self.base.dtype)
        bits = self._whole()[inside]
        block[within] = bits
        self.traffic.loaded += bits.numel() * bits.element_size()
        return block

    def write(self, coordinates: Sequence[int], cta: int, block: torch.Tensor) -> None:
        """A block's share, of which nothing is written outside the tensor."""
        inside, within = self._box(coordinates, cta)
        target = self._whole()[inside]
        target.copy_(block[within])
        self.writes[inside] += 1
        self.traffic.stored += target.numel() * target.element_size()


@dataclass(eq=False)
class Memory:
    """An allocation in every block of a cluster."""

    name: str
    dtype: Any
    shared: bool
    of: list[torch.Tensor]
    """Each block's share."""
    aliases: list[tuple[Memory, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    """Other readings of parts of it, as other types and shapes, and which parts."""
    within: tuple[Memory, tuple[tuple[int, int], ...]] | None = None
    """What this is another reading of, and of which part."""


def spoiled(shape: Sequence[int], dtype: Any, ctas: int) -> list[torch.Tensor]:
    """New memory of so many blocks."""
    shares = [torch.zeros(list(shape), dtype=KINDS[dtype]) for _ in range(ctas)]
    for one in shares:
        spoil(one)
    return shares


def spoil(memory: torch.Tensor) -> None:
    """Fill with NaN, or of integers a number that shows."""
    if memory.is_floating_point():
        memory.copy_(torch.full((), math.nan, dtype=torch.float32).to(memory.dtype))
    else:
        memory.fill_(85)


@dataclass(eq=False)
class View:
    """What a memory descriptor names: shared or tensor memory or a part of it, perhaps turned."""

    memory: Memory
    space: Space
    shape: list[int]
    layout: Any
    box: tuple[tuple[int, int], ...]
    """The part of each block's share, whatever its present shape."""
    made: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()
    """How it is made from a block's share."""
    dims: tuple[int, ...] | None = None
    """The allocation's dimension that each of its own is; None if they were mixed."""

    @property
    def dtype(self) -> Any:
        return self.memory.dtype

    def of(self, cta: int) -> torch.Tensor:
        """The numbers that it names in this block, to read or write."""
        found = self.memory.of[cta]
        for make in self.made:
            found = make(found)
        return found

    def put(self, cta: int, value: torch.Tensor) -> None:
        """Write there; other readings of the same memory become unusable."""
        self.of(cta).copy_(value)
        for other, box in self.memory.aliases:
            if all(a < d and c < b for (a, b), (c, d) in zip(self.box, box, strict=True)):
                spoil(other.of[cta])
        if self.memory.within is not None:
            whole, box = self.memory.within
            spoil(whole.of[cta][tuple(slice(*one) for one in box)])

    def region(self, cta: int) -> int:
        """Its number among the machine's regions."""
        return self.space.region(Region(self.memory.name, cta, self.memory.shared, self.box))

    def index(self, at: Any) -> View:
        return self.part(0, int(at), 1, drop=True)

    def part(self, dim: int, start: int, length: int, *, drop: bool = False) -> View:
        """`length` from `start` on in one dimension, which goes if `drop`."""
        if not 0 <= start <= start + length <= self.shape[dim]:
            raise Fault(f"part {start}:{start + length} of {self.memory.name}, which is {self.shape}")
        if self.dims is None:
            raise NotImplementedError("a part of memory that was given another shape")
        whole = self.dims[dim]
        low = self.box[whole][0] + start
        box = (*self.box[:whole], (low, low + length), *self.box[whole + 1 :])
        shape = [*self.shape[:dim], *([] if drop else [length]), *self.shape[dim + 1 :]]
        own = self.of(0).shape[dim]
        if own != self.shape[dim]:
            raise NotImplementedError("a part of a dimension that blocks of a cluster share")

        def make(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.select(dim, start) if drop else tensor.narrow(dim, start, length)

        dims = (*self.dims[:dim], *(() if drop else (whole,)), *self.dims[dim + 1 :])
        return replace(self, shape=shape, box=box, made=(*self.made, make), dims=dims)

    def permute(self, order: Sequence[int]) -> View:
        places = tuple(order)
        dims = None if self.dims is None else tuple(self.dims[at] for at in places)
        shape = [self.shape[at] for at in places]
        return replace(self, shape=shape, made=(*self.made, lambda t: t.permute(places)), dims=dims)

    def reshape(self, shape: Sequence[int]) -> View:
        if list(self.of(0).shape) != self.shape:
            raise NotImplementedError("memory that blocks of a cluster share is given another shape")
        return replace(self, shape=list(shape), made=(*self.made, lambda t: t.reshape(*shape)), dims=None)

    def load(self, layout: Any = None) -> Tensor:
        agent = current()
        agent.read(self)
        value = self.of(agent.cta).clone()
        expected = [own for _, own in share(self.shape, bases(layout), agent.cta)]
        if layout is not None and agent.launch.ctas > 1 and expected != list(value.shape):
            raise Fault(
                f"{agent.at()}: a block has {list(value.shape)} of it in memory, {expected} in registers"
            )
        return Tensor(value, self.dtype, list(self.shape), layout)

    def store(self, value: Tensor) -> None:
        agent = current()
        if value.shape != self.shape or value.dtype != self.dtype:
            raise Fault(f"{agent.at()}: {value.dtype} {value.shape} is stored in {self.dtype} {self.shape}")
        agent.write(self)
        self.put(agent.cta, value.value)

    def slice(self, start: int, length: int) -> View:
        return self.part(0 if self.memory.shared else len(self.shape) - 1, start, length)

    def _reinterpret(self, dtype: Any, shape: Sequence[int], layout: Any) -> View:
        """Another reading of this memory, with numbers of its own; a write to one spoils the other."""
        launch = current().launch
        name = f"{self.memory.name}{self.box} as {dtype} {shape}"
        if name not in launch.memory:
            shares, whole = spoiled(shape, dtype, launch.ctas), self.memory
            made = Memory(whole.name, dtype, whole.shared, shares, within=(whole, self.box))
            launch.memory[name] = made
            self.memory.aliases.append((made, self.box))
        memory = launch.memory[name]
        return replace(self, memory=memory, shape=list(shape), layout=layout, made=(), dims=None)
