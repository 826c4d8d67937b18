"""Kernels that a launch really runs, read from its captured CUDA graph: no profiler disturbs its timing.

A library's choice shows in its kernels' names (cuBLAS writes tile, stages and cluster there), and how it
divides the work in their grids. The names need a driver of CUDA 12.3 or later and are left out otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from bench.device.cuda_driver import LIBRARY, CudaError, call

MOST_KERNELS = 8
"""Most kernels that are listed; further ones are counted."""

_KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_OTHERS = {1: "copy", 2: "memset"}


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        ("shared_byte", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    )


def kernels(graph: int, library: str = LIBRARY) -> str:
    """`name grid 132x1x1 block 384` for each kernel of a cudaGraph_t, `copy`, `memset`; joined by `; `.

    OSError if there is no driver, CudaError if it does not answer.
    """
    nodes = list(_nodes(ctypes.CDLL(library), ctypes.c_void_p(graph)))
    more = len(nodes) - MOST_KERNELS
    return "; ".join(nodes[:MOST_KERNELS] + ([f"and {more} more"] if more > 0 else []))


def _nodes(driver: ctypes.CDLL, graph: ctypes.c_void_p) -> Iterator[str]:
    count = ctypes.c_size_t()
    call(driver, "cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    call(driver, "cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    for node in nodes[: count.value]:
        kind = ctypes.c_int()
        call(driver, "cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        if kind.value == _KERNEL_NODE:
            yield _kernel(driver, node)
        elif kind.value in _OTHERS:
            yield _OTHERS[kind.value]


def _kernel(driver: ctypes.CDLL, node: int | None) -> str:
    params = _KernelNode()
    call(driver, "cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(params))
    grid = f"{params.grid_x}x{params.grid_y}x{params.grid_z}"
    block = params.block_x * params.block_y * params.block_z
    return f"{_name(driver, params)} grid {grid} block {block}"


def _name(driver: ctypes.CDLL, node: _KernelNode) -> str:
    text = ctypes.c_char_p()
    ask, of = ("cuFuncGetName", node.func) if node.func else ("cuKernelGetName", node.kern)
    try:
        call(driver, ask, ctypes.byref(text), ctypes.c_void_p(of))
    except CudaError:
        return "?"
    return (text.value or b"?").decode(errors="replace")
