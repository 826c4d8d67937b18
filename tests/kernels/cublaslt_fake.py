"""A stand-in for `nvmath.bindings.cublasLt` that multiplies on a CPU, from nothing but what it is told.

It keeps what is set, byte for byte as its header has it, and refuses what cuBLASLt refuses. Memory is read
through addresses, by the sizes and leading dimensions of the descriptors, column by column as BLAS does.
"""

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

ATTRIBUTES: dict[str, tuple[str, dict[str, tuple[int, str]]]] = {
    "matmul_desc": (
        "MatmulDescAttribute",
        {
            **{"TRANSA": (3, "i4"), "TRANSB": (4, "i4"), "EPILOGUE": (7, "u4"), "BIAS_POINTER": (8, "i8")},
            **{"A_SCALE_POINTER": (17, "i8"), "B_SCALE_POINTER": (18, "i8"), "FAST_ACCUM": (25, "i1")},
        },
    ),
    "matmul_preference": (
        "MatmulPreferenceAttribute",
        {
            **{"MAX_WORKSPACE_BYTES": (1, "u8"), "REDUCTION_SCHEME_MASK": (3, "u4")},
            **{f"MIN_ALIGNMENT_{matrix}_BYTES": (5 + i, "u4") for i, matrix in enumerate("ABCD")},
        },
    ),
    "matmul_algo_config": (
        "MatmulAlgoConfigAttribute",
        {
            **{"ID": (0, "i4"), "TILE_ID": (1, "u4"), "SPLITK_NUM": (2, "i4"), "REDUCTION_SCHEME": (3, "u4")},
            **{"CTA_SWIZZLING": (4, "u4"), "CUSTOM_OPTION": (5, "u4"), "STAGES_ID": (6, "u4")},
            **{"INNER_SHAPE_ID": (7, "u2"), "CLUSTER_SHAPE_ID": (8, "u2")},
        },
    ),
    "matmul_algo_cap": ("MatmulAlgoCapAttribute", {"TILE_IDS": (6, "u4"), "STAGES_IDS": (13, "u4")}),
}
"""Kind of object -> the enumeration of its attributes, and of each its number and type (cublasLt.h)."""
NAMES = {kind: {number: name for name, (number, _) in of.items()} for kind, (_, of) in ATTRIBUTES.items()}
TYPES = {kind: dict(of.values()) for kind, (_, of) in ATTRIBUTES.items()}
CONFIGURED = NAMES["matmul_algo_config"]

MatmulTile = IntEnum(
    "MatmulTile",
    dict(TILE_UNDEFINED=0, TILE_64x64=15, TILE_128x128=20, TILE_128x256=23, TILE_256x128=24),
)
ENUMS = (
    *(IntEnum(enum, {name: number for name, (number, _) in of.items()}) for enum, of in ATTRIBUTES.values()),
    MatmulTile,
    IntEnum("MatmulStages", dict(STAGES_UNDEFINED=0, STAGES_32x3=9, STAGES_64x3=15, STAGES_64xAUTO=35)),
    IntEnum("ReductionScheme", dict(NONE=0, INPLACE=1, COMPUTE_TYPE=2, OUTPUT_TYPE=4)),
    IntEnum("ClusterShape", dict(SHAPE_AUTO=0, SHAPE_1x1x1=2, SHAPE_2x1x1=3)),
)

CUDA = {
    0: torch.float32,
    1: torch.float64,
    2: torch.float16,
    3: torch.int8,
    10: torch.int32,
    14: torch.bfloat16,
    28: torch.float8_e4m3fn,
}
SCALAR = {68: 0, 70: 1, 72: 10, 77: 0}
"""The one type of alpha and beta that goes with each type of computation here."""
EPILOGUE_BIAS = 4
HANDLE = 4711
_ALGO = np.dtype([("data_", "<u8", (8,))])
_RESULT = np.dtype(
    [
        ("algo", _ALGO),
        ("workspace_size", "<u8"),
        ("state", "<i4"),
        ("waves_count", "<f4"),
        ("reserved", "<i4", (4,)),
    ]
)
NOT_SUPPORTED, INVALID_VALUE = 15, 7


class FakeError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Way(SimpleNamespace):
    """An algorithm of the heuristic: its configuration, what it needs, and whether it works when run."""

    def __init__(self, number: int, tile: str = "128x128", **other: int) -> None:
        super().__init__(ID=number, TILE_ID=int(MatmulTile[f"TILE_{tile}"]), SPLITK_NUM=1)
        defaults = dict(REDUCTION_SCHEME=0, CTA_SWIZZLING=0, CUSTOM_OPTION=0, STAGES_ID=15, INNER_SHAPE_ID=0)
        needs = dict(CLUSTER_SHAPE_ID=3, workspace=0, alignment=2, breaks=0, state=0)
        self.__dict__.update(defaults | needs | other)


class FakeCublasLt:
    """Stands for the bindings; `ways` is what the heuristic knows, best first."""

    cuBLASLtError = FakeError
    matmul_algo_dtype, matmul_heuristic_result_dtype = _ALGO, _RESULT

    def __init__(self, *ways: Way, able: dict[int, tuple[list[int], list[int]]] | None = None) -> None:
        """`able`: algorithm -> its tiles and its stages, for those who configure one themselves."""
        self.ways, self.able = ways, able or {}
        self.alive: dict[int, tuple[str, dict[str, int]]] = {}
        self.made: list[str] = []
        self.asked: list[int] = []
        self.ran: list[tuple[int, int]] = []
        """Algorithm and stream of every matmul."""
        for one in ENUMS:
            setattr(self, one.__name__, one)

    def __getattr__(self, name: str) -> Any:
        for kind in ("matmul_desc", "matmul_preference", "matrix_layout"):
            if name.startswith(kind):
                return lambda *given: getattr(self, name.removeprefix(kind))(kind, *given)
        for kind, types in TYPES.items():
            if name == f"get_{kind}_attribute_dtype":
                return lambda number: np.dtype(types[number]).type
        raise AttributeError(name)

    def create(self) -> int:
        return HANDLE

    def get_version(self) -> int:
        return 130000

    def get_status_name(self, status: int) -> str:
        return {15: "CUBLAS_STATUS_NOT_SUPPORTED", 7: "CUBLAS_STATUS_INVALID_VALUE"}[status]

    def _create(self, kind: str, *given: int) -> int:
        names = {"matmul_desc": ("compute", "scalar"), "matrix_layout": ("type", "rows", "columns", "ld")}
        address = 1000 + len(self.made)
        self.alive[address] = kind, dict(zip(names.get(kind, ()), given, strict=True))
        self.made.append(kind)
        return address

    def _destroy(self, kind: str, address: int) -> None:
        assert self.alive.pop(address)[0] == kind

    def _set_attribute(self, kind: str, address: int, number: int, buffer: int, byte: int) -> None:
        dtype = np.dtype(TYPES[kind][number])
        assert self.alive[address][0] == kind and byte == dtype.itemsize
        self.alive[address][1][NAMES[kind][number]] = int(_read(buffer, dtype, 1)[0])

    def of(self, address: int, kind: str) -> dict[str, int]:
        """What is known of a living object of this kind."""
        assert self.alive[address][0] == kind
        return self.alive[address][1]

    def matmul_algo_get_heuristic(self, *given: int) -> None:
        handle, operation, a, b, c, d, wishes, most, results, count = given
        assert handle == HANDLE
        self._checked(operation, a, b, c, d)
        self.asked.append(most)
        wanted = self.of(wishes, "matmul_preference")
        aligned = min(wanted.get(f"MIN_ALIGNMENT_{name}_BYTES", 256) for name in "ABCD")
        fit = [
            way
            for way in self.ways
            if way.workspace <= wanted.get("MAX_WORKSPACE_BYTES", 0)
            and way.alignment <= aligned
            and way.REDUCTION_SCHEME & wanted.get("REDUCTION_SCHEME_MASK", 7) == way.REDUCTION_SCHEME
        ][:most]
        if not fit:
            raise FakeError(NOT_SUPPORTED)
        for place, way in enumerate(fit):
            into = _read(results + place * _RESULT.itemsize, _RESULT, 1)
            into["algo"]["data_"][0] = _packed(way)
            into["workspace_size"], into["state"] = way.workspace, way.state
        _read(count, np.dtype("i4"), 1)[0] = len(fit)

    def matmul_algo_get_ids(self, handle: int, *given: int) -> tuple[int, ...]:
        assert handle == HANDLE and len(given) == 7 and given[1] == SCALAR[given[0]]
        return tuple(self.able)

    def matmul_algo_init(self, handle: int, *given: int) -> None:
        *types, number, address = given
        assert handle == HANDLE and len(types) == 6
        if number < 0:  # listed, but not for these types
            raise FakeError(NOT_SUPPORTED)
        _read(address, _ALGO, 1)["data_"][0] = _packed(
            Way(number, "64x64", TILE_ID=0, STAGES_ID=0, CLUSTER_SHAPE_ID=0)
        )

    def matmul_algo_config_get_attribute(
        self, algorithm: int, number: int, buffer: int, byte: int, written: int
    ) -> None:
        dtype = np.dtype(TYPES["matmul_algo_config"][number])
        assert byte == dtype.itemsize
        _read(buffer, dtype, 1)[0] = _unpacked(algorithm)[CONFIGURED[number]]
        _read(written, np.dtype("u8"), 1)[0] = byte

    def matmul_algo_config_set_attribute(self, algorithm: int, number: int, buffer: int, byte: int) -> None:
        dtype = np.dtype(TYPES["matmul_algo_config"][number])
        assert byte == dtype.itemsize
        configuration = _unpacked(algorithm)
        configuration[CONFIGURED[number]] = int(_read(buffer, dtype, 1)[0])
        _read(algorithm, _ALGO, 1)["data_"][0] = _packed(SimpleNamespace(**configuration))

    def matmul_algo_cap_get_attribute(
        self, algorithm: int, number: int, buffer: int, byte: int, written: int
    ) -> None:
        tiles, stages = self.able[_unpacked(algorithm)["ID"]]
        values = {6: tiles, 13: stages}[number]
        _read(written, np.dtype("u8"), 1)[0] = 4 * len(values)
        if byte:
            assert byte == 4 * len(values)
            _read(buffer, np.dtype("u4"), len(values))[:] = values

    def matmul_algo_check(self, *given: int) -> None:
        handle, operation, a, b, c, d, algorithm, result = given
        assert handle == HANDLE
        self._checked(operation, a, b, c, d)
        configuration = _unpacked(algorithm)
        tiles, _ = self.able[configuration["ID"]]
        if configuration["TILE_ID"] not in tiles or configuration["STAGES_ID"] == 9:
            raise FakeError(NOT_SUPPORTED)
        into = _read(result, _RESULT, 1)
        into["state"], into["workspace_size"] = 0, 2**40 if configuration["STAGES_ID"] == 35 else 0

    def matmul(self, *given: int) -> None:
        handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, *rest = given
        algorithm, workspace, workspace_byte, stream = rest
        assert handle == HANDLE and workspace
        number = _unpacked(algorithm)["ID"]
        way = next((one for one in self.ways if one.ID == number), Way(number))
        if way.breaks:
            raise FakeError(INVALID_VALUE)
        assert way.workspace <= workspace_byte
        known = self._checked(operation, of_a, of_b, of_c, of_d)
        scalar = {0: "f4", 1: "f8", 10: "i4"}[known["scalar"]]
        times, plus = (float(_read(at, np.dtype(scalar), 1)[0]) for at in (alpha, beta))
        left, right = self._matrix(a, of_a, known["compute"]), self._matrix(b, of_b, known["compute"])
        product = (
            times
            * (left.t() if known.get("TRANSA") else left)
            @ (right.t() if known.get("TRANSB") else right)
        )
        for name in ("A", "B") if left.dtype == torch.float64 and "A_SCALE_POINTER" in known else ():
            product = product * float(_read(known[f"{name}_SCALE_POINTER"], np.dtype("f4"), 1)[0])
        if plus:  # else C may be anything, NaN too
            product = product + plus * self._matrix(c, of_c, 0)
        into = self._view(d, of_d)
        if known.get("EPILOGUE", 1) == EPILOGUE_BIAS:
            bias = _memory(known["BIAS_POINTER"], into.shape[0], into.dtype)
            product = product + bias.double()[:, None]
        into.copy_(product)
        self.ran.append((number, stream))

    def _checked(self, operation: int, *matrices: int) -> dict[str, int]:
        """What cuBLASLt holds the operands to: sizes, types, and what 8-bit types ask for."""
        known = self.of(operation, "matmul_desc")
        a, b, c, d = (self.of(matrix, "matrix_layout") for matrix in matrices)
        assert known["scalar"] == SCALAR[known["compute"]]
        (m, k), (of_b, n) = (
            (x["columns"], x["rows"]) if known.get(flag) else (x["rows"], x["columns"])
            for x, flag in ((a, "TRANSA"), (b, "TRANSB"))
        )
        assert k == of_b and all((x["rows"], x["columns"]) == (m, n) for x in (c, d))
        assert all(x["ld"] >= x["rows"] for x in (a, b, c, d))
        types = [CUDA[x["type"]] for x in (a, b, c, d)]
        if types[0] == torch.float8_e4m3fn:
            assert known.get("FAST_ACCUM") == 1 and known["compute"] == 68
            assert types == [torch.float8_e4m3fn] * 2 + [torch.bfloat16] * 2
        elif types[0] == torch.int8:
            assert known["compute"] == 72 and types == [torch.int8] * 2 + [torch.int32] * 2
        else:
            assert len(set(types)) == 1
            allowed = {torch.float32: (68, 77), torch.float64: (70,)}.get(types[0], (68,))
            assert known["compute"] in allowed
        if types[0].itemsize == 1 and (known.get("TRANSA"), known.get("TRANSB", 0)) != (1, 0):
            raise FakeError(NOT_SUPPORTED)
        return known

    def _view(self, address: int, matrix: int) -> torch.Tensor:
        """The matrix as BLAS sees it, [rows, columns], in its own memory."""
        known = self.of(matrix, "matrix_layout")
        rows, columns, ld = known["rows"], known["columns"], known["ld"]
        flat = _memory(address, (columns - 1) * ld + rows, CUDA[known["type"]])
        return flat.as_strided((rows, columns), (1, ld))

    def _matrix(self, address: int, matrix: int, compute: int) -> torch.Tensor:
        found = self._view(address, matrix)
        if compute == 77:  # tf32 has 10 bits behind the point
            found = (found.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
        return found.double()


def _read(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    """The memory itself, not a copy."""
    return np.frombuffer((ctypes.c_char * (dtype.itemsize * count)).from_address(address), dtype)


def _memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype)


def _packed(way: Any) -> list[int]:
    """An algorithm as cuBLASLt's own structure would hold it: eight words."""
    values = [getattr(way, name) for name in CONFIGURED.values()]
    return [*values[:7], values[7] << 16 | values[8]]


def _unpacked(address: int) -> dict[str, int]:
    words = [int(word) for word in _read(address, _ALGO, 1)["data_"][0]]
    return dict(zip(CONFIGURED.values(), [*words[:7], words[7] >> 16, words[7] & 0xFFFF], strict=True))
