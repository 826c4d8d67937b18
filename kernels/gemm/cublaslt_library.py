"""cuBLASLt as nvmath-python binds it: a handle, its descriptors, and its algorithms told in words.

The bindings are the C interface one to one, addresses as integers; what they add is the layout of every
structure and the type of every attribute, which are used here instead of a copy of the header. The library
is the one that torch has loaded, where torch has loaded one.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from bench.causes import first_line
from bench.spec import Unsupported
from kernels.optional import lacking

_WORKSPACE_BYTE = 32 * 2**20
_WORKSPACE_BYTE_HOPPER = 64 * 2**20
"""Room for the parts of a split K, and for what Hopper's algorithms keep beside them."""

_ENUM = {
    "matmul_desc": "MatmulDescAttribute",
    "matmul_preference": "MatmulPreferenceAttribute",
    "matmul_algo_config": "MatmulAlgoConfigAttribute",
    "matmul_algo_cap": "MatmulAlgoCapAttribute",
}
"""Kind of object -> the enumeration in which the bindings name its attributes."""


class Library:
    """cuBLASLt on one device: a handle, one workspace, and calls that raise Unsupported in its own words.

    The workspace serves every launch, as torch's does: launches of one stream follow one another.
    """

    def __init__(self, bindings: Any, workspace: torch.Tensor) -> None:
        """`bindings` is `nvmath.bindings.cublasLt`. The device must be the current one."""
        self.bindings = bindings
        self.workspace = workspace
        self.chosen: dict[object, Any] = {}
        """What was chosen for a question: a ring of thousands of slots asks again."""
        try:
            self.handle = self.call("create")
        except RuntimeError as error:  # no library, no driver
            says = f"cuBLASLt cannot be loaded, torch for CUDA brings it: {first_line(error)}"
            raise Unsupported(says) from error

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the bindings."""
        try:
            return getattr(self.bindings, name)(*arguments)
        except self.bindings.cuBLASLtError as error:
            status = self.bindings.get_status_name(error.status)
            raise Unsupported(f"cuBLASLt declines, {name}: {status}") from error

    def attribute(self, kind: str, name: str) -> tuple[int, type[np.generic]]:
        """Number and type of an attribute of this kind of object."""
        number = getattr(self.bindings, _ENUM[kind])[name]
        return number, getattr(self.bindings, f"get_{kind}_attribute_dtype")(number)

    def set(self, kind: str, address: int, name: str, value: int) -> None:
        """Set an attribute of an object of this kind; addresses are integers too."""
        number, dtype = self.attribute(kind, name)
        stored = np.array([value], dtype=dtype)
        self.call(f"{kind}_set_attribute", address, number, stored.ctypes.data, stored.nbytes)


class Held:
    """An object of cuBLASLt's that lives as long as this one."""

    def __init__(self, library: Library, kind: str, *arguments: int) -> None:
        """`kind` is `matmul_desc`, `matrix_layout` or `matmul_preference`."""
        self._library, self._kind = library, kind
        self.address: int = library.call(f"{kind}_create", *arguments)
        destroy = getattr(library.bindings, f"{kind}_destroy")
        weakref.finalize(self, destroy, self.address).atexit = False  # CUDA may be gone by then

    def set(self, name: str, value: int) -> None:
        """Set an attribute."""
        self._library.set(self._kind, self.address, name, value)


class Algorithm:
    """One way that cuBLASLt can multiply: an algorithm with its tile, stages, split of K and so on."""

    def __init__(self, library: Library, opaque: np.ndarray[Any, Any]) -> None:
        """`opaque` is one `cublasLtMatmulAlgo_t`."""
        self._library = library
        self._opaque = opaque.copy()

    @property
    def address(self) -> int:
        """Its address for cuBLASLt."""
        return int(self._opaque.ctypes.data)

    def get(self, name: str) -> int:
        """An attribute of its configuration."""
        number, kind = self._library.attribute("matmul_algo_config", name)
        stored, written = np.zeros(1, dtype=kind), np.zeros(1, dtype=np.uint64)
        self._library.call(
            "matmul_algo_config_get_attribute",
            *(self.address, number, stored.ctypes.data, stored.nbytes, written.ctypes.data),
        )
        return int(stored[0])

    def having(self, **attributes: int) -> Algorithm:
        """The same but for these attributes of its configuration."""
        other = Algorithm(self._library, self._opaque)
        for name, value in attributes.items():
            self._library.set("matmul_algo_config", other.address, name, value)
        return other

    def able(self, name: str) -> list[int]:
        """The values of a capability that is a list."""
        number, kind = self._library.attribute("matmul_algo_cap", name)
        byte = np.zeros(1, dtype=np.uint64)
        read = functools.partial(self._library.call, "matmul_algo_cap_get_attribute", self.address, number)
        read(0, 0, byte.ctypes.data)  # how many there are
        stored = np.zeros(int(byte[0]) // np.dtype(kind).itemsize, dtype=kind)
        if len(stored):
            read(stored.ctypes.data, stored.nbytes, byte.ctypes.data)
        return [int(value) for value in stored]

    @property
    def tile(self) -> str:
        """`256x128`: rows x columns of the column-major D, so M x N of the documents."""
        return self._named("MatmulTile", "TILE_ID")

    def __str__(self) -> str:
        """Everything that tells it from others: `algo 66 tile 128x256 stages 64x3 split 1 cluster 2x1`.

        Stages are depth along K x count.
        """
        words = [f"algo {self.get('ID')} tile {self.tile} stages {self._named('MatmulStages', 'STAGES_ID')}"]
        split = self.get("SPLITK_NUM")
        words.append(f"split {split}")
        if self.get("REDUCTION_SCHEME"):
            words.append(f"reduced in {self._named('ReductionScheme', 'REDUCTION_SCHEME')}")
        words.append(f"cluster {self._named('ClusterShape', 'CLUSTER_SHAPE_ID').removesuffix('x1')}")
        for name, word in (
            ("INNER_SHAPE_ID", "inner"),
            ("CTA_SWIZZLING", "swizzle"),
            ("CUSTOM_OPTION", "custom"),
        ):
            if value := self.get(name):
                words.append(f"{word} {value}")
        return " ".join(words)

    def _named(self, enum: str, attribute: str) -> str:
        """The value as the header names it, or its number where this library is newer than the bindings."""
        value = self.get(attribute)
        try:
            name = str(getattr(self._library.bindings, enum)(value).name)
        except ValueError:
            return f"number {value}"
        return name.removeprefix("TILE_").removeprefix("STAGES_").removeprefix("SHAPE_").lower()


class Question:
    """What cuBLASLt is asked to multiply: a descriptor of the operation, four of matrices, preferences."""

    def __init__(
        self, library: Library, operation: Held, matrices: tuple[Held, Held, Held, Held], wishes: Held
    ) -> None:
        """`matrices` are A, B, C and D."""
        self._library = library
        self._wishes = wishes
        self._kept = (operation, matrices)
        self._asked = (library.handle, operation.address, *(matrix.address for matrix in matrices))

    def heuristic(self, most: int) -> list[Algorithm]:
        """What the heuristic names, at most so many, the one that it thinks quickest first."""
        library = self._library
        results = np.zeros(most, dtype=library.bindings.matmul_heuristic_result_dtype)
        count = np.zeros(1, dtype=np.int32)
        library.call(
            "matmul_algo_get_heuristic",
            *(*self._asked, self._wishes.address, most, results.ctypes.data, count.ctypes.data),
        )
        good = results[: int(count[0])]
        return [
            Algorithm(library, result["algo"]) for result in good.reshape(-1, 1) if result["state"][0] == 0
        ]

    def allows(self, algorithm: Algorithm) -> bool:
        """Whether this algorithm can solve it here, within the workspace."""
        library = self._library
        results = np.zeros(1, dtype=library.bindings.matmul_heuristic_result_dtype)
        try:
            library.call("matmul_algo_check", *self._asked, algorithm.address, results.ctypes.data)
        except Unsupported:
            return False
        return bool(results["state"][0] == 0 and results["workspace_size"][0] <= library.workspace.nbytes)


def algorithms(library: Library, *types: int) -> Iterator[Algorithm]:
    """All for these types: of the computation, its scalars, A, B, C and D. As yet without tiles."""
    for number in library.call("matmul_algo_get_ids", library.handle, *types, 1000):
        made = Algorithm(library, np.zeros(1, dtype=library.bindings.matmul_algo_dtype))
        try:
            library.call("matmul_algo_init", library.handle, *types, int(number), made.address)
        except Unsupported:
            continue
        yield made


@functools.cache
def loaded(device: int) -> Library:
    """The cuBLASLt that torch uses, with a handle on this device. Unsupported if there is none."""
    try:
        from nvmath.bindings import cublasLt
    except (ImportError, RuntimeError) as error:
        raise lacking("cublaslt", "nvmath-python", error) from error
    hopper = torch.cuda.get_device_capability(device) >= (9, 0)
    byte = _WORKSPACE_BYTE_HOPPER if hopper else _WORKSPACE_BYTE
    with torch.cuda.device(device):
        return Library(cublasLt, torch.empty(byte, dtype=torch.uint8, device="cuda"))
