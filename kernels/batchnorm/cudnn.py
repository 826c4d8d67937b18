"""cuDNN's batch normalization by its C interface, to ask for the mode that torch does not offer.

The guide compares CUDNN_BATCHNORM_SPATIAL, which reads x at least twice, with
CUDNN_BATCHNORM_SPATIAL_PERSISTENT, which keeps it on chip. torch takes the latter for NHWC only. So this
calls cuDNN itself: the library that torch has loaded, by ctypes, with the functions that torch calls too (the
...Ex ones: they alone are fast for NHWC). cuDNN 9 calls them deprecated and still has them. Asking for a mode
is all that can be done: cuDNN may take another kernel where it has no persistent one, and does not say so.

The persistent mode sums scaled integers atomically: quicker, with a narrower range of values (says its
header).

Prototypes and constants: cudnn_ops.h and cudnn_graph.h of cuDNN 9.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

import torch

from bench.spec import Launch, Tensors, Unsupported
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics

SPATIAL = 1
SPATIAL_PERSISTENT = 2
"""cudnnBatchNormMode_t."""

_TYPE = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}
"""cudnnDataType_t."""
_NORMALIZE_ONLY = 0
"""cudnnBatchNormOps_t: no activation, no addition."""
_ONE, _ZERO = c_float(1.0), c_float(0.0)
"""Results replace what was there."""


class Library:
    """cuDNN on one device: a handle, and calls that raise Unsupported in cuDNN's own words."""

    def __init__(self, functions: Any) -> None:
        """`functions` is the shared library, as ctypes loads it."""
        self._functions = functions
        functions.cudnnGetErrorString.restype = ctypes.c_char_p
        self.handle = c_void_p()
        self.call("cudnnCreate", byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status. Pointers must be c_void_p, not int."""
        status = getattr(self._functions, name)(*arguments)
        if status:
            words = self._functions.cudnnGetErrorString(status).decode()
            raise Unsupported(f"{name}: {words}")

    def size(self, name: str, *arguments: Any) -> int:
        """What a function that ends in `size_t *sizeInBytes` answers."""
        found = c_size_t()
        self.call(name, *arguments, byref(found))
        return found.value


class Descriptor:
    """Shape, strides and type of a tensor, as cuDNN keeps them; destroyed with this object."""

    def __init__(self, library: Library) -> None:
        """An empty one."""
        self._library = library
        self.value = c_void_p()
        library.call("cudnnCreateTensorDescriptor", byref(self.value))

    def __del__(self) -> None:
        self._library.call("cudnnDestroyTensorDescriptor", self.value)


@functools.cache
def loaded(device: int) -> Library:
    """The cuDNN that torch uses, with a handle on this device. Unsupported if there is none."""
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    if version is None:
        raise Unsupported("this torch comes without cuDNN")
    major = version // 10_000 if version >= 90_000 else version // 1_000
    name = f"libcudnn.so.{major}"
    try:
        functions = ctypes.CDLL(name)
    except OSError as error:
        raise Unsupported(f"{name} cannot be loaded: {error}") from error
    with torch.cuda.device(device):
        return Library(functions)


def launch(problem: BatchNorm, tensors: Tensors, mode: int, library: Library | None = None) -> Launch:
    """The problem's outputs as operator.py has them, by cuDNN in this mode, on torch's current stream.

    `library` defaults to the one on the tensors' device.
    """
    x = tensors[0]
    if library is None:
        library = loaded(x.device.index or 0)
    image, of_channel = Descriptor(library), Descriptor(library)
    strides = (problem.c * problem.h * problem.w, problem.h * problem.w, problem.w, 1)
    if problem.layout == "NHWC":
        strides = (strides[0], 1, problem.w * problem.c, problem.c)
    shape = (problem.n, problem.c, problem.h, problem.w)
    library.call("cudnnSetTensor4dDescriptorEx", image.value, _TYPE[x.dtype], *shape, *strides)
    library.call("cudnnDeriveBNTensorDescriptor", of_channel.value, image.value, mode)
    build = {"forward": _forward, "inference": _inference, "backward": _backward}[problem.direction]
    name, arguments, outputs, others = build(library, mode, image, of_channel, tensors)
    kept = (image, of_channel, tensors, others)  # cuDNN has their addresses only

    def call() -> Tensors:
        # At each call: a graph is captured on a stream of its own.
        library.call("cudnnSetStream", library.handle, _stream(x.device))
        library.call(name, library.handle, mode, *arguments)
        assert kept
        return outputs

    call()  # whether cuDNN can do this shows only now
    return Launch(call, outputs)


def _stream(device: torch.device) -> c_void_p:
    return c_void_p(torch.cuda.current_stream(device).cuda_stream)


def _at(tensor: torch.Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


def _space(byte: int, like: torch.Tensor) -> torch.Tensor:
    """Zeroed, since nothing else fills a reserve without a forward pass."""
    return torch.zeros(byte, dtype=torch.uint8, device=like.device)


_Call = tuple[str, tuple[Any, ...], "Tensors", "Tensors"]
"""The function, its arguments after handle and mode, the outputs, and what else must stay alive."""


def _forward(
    library: Library, mode: int, image: Descriptor, of_channel: Descriptor, tensors: Tensors
) -> _Call:
    x, weight, bias = tensors
    y, mean, rstd = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    running = running_statistics(weight.numel(), x.device)
    one, channel, kind = image.value, of_channel.value, c_int(_NORMALIZE_ONLY)
    workspace = _space(
        library.size(
            "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize",
            *(library.handle, mode, kind, one, None, one, channel, None),
        ),
        x,
    )
    reserve = _space(_reserve_byte(library, mode, image), x)
    arguments = (
        *(kind, byref(_ONE), byref(_ZERO), one, _at(x), None, None, one, _at(y)),
        *(channel, _at(weight), _at(bias)),
        *(c_double(MOMENTUM), _at(running[0]), _at(running[1]), c_double(EPSILON), _at(mean), _at(rstd)),
        *(None, _at(workspace), c_size_t(workspace.numel()), _at(reserve), c_size_t(reserve.numel())),
    )
    kept = (*running, workspace, reserve)
    return "cudnnBatchNormalizationForwardTrainingEx", arguments, (y, mean, rstd), kept


def _inference(
    library: Library, mode: int, image: Descriptor, of_channel: Descriptor, tensors: Tensors
) -> _Call:
    x, weight, bias, mean, variance = tensors
    y = torch.empty_like(x)
    arguments = (
        *(byref(_ONE), byref(_ZERO), image.value, _at(x), image.value, _at(y), of_channel.value),
        *(_at(weight), _at(bias), _at(mean), _at(variance), c_double(EPSILON)),
    )
    return "cudnnBatchNormalizationForwardInference", arguments, (y,), ()


def _backward(
    library: Library, mode: int, image: Descriptor, of_channel: Descriptor, tensors: Tensors
) -> _Call:
    x, dy, weight, mean, rstd = tensors
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    one, channel, kind = image.value, of_channel.value, c_int(_NORMALIZE_ONLY)
    workspace = _space(
        library.size(
            "cudnnGetBatchNormalizationBackwardExWorkspaceSize",
            *(library.handle, mode, kind, one, None, one, None, one, channel, None),
        ),
        x,
    )
    reserve = _space(_reserve_byte(library, mode, image), x)
    arguments = (
        *(kind, byref(_ONE), byref(_ZERO), byref(_ONE), byref(_ZERO)),
        *(one, _at(x), None, None, one, _at(dy), None, None, one, _at(dx)),
        *(channel, _at(weight), None, _at(dweight), _at(dbias), c_double(EPSILON), _at(mean), _at(rstd)),
        *(None, _at(workspace), c_size_t(workspace.numel()), _at(reserve), c_size_t(reserve.numel())),
    )
    return "cudnnBatchNormalizationBackwardEx", arguments, (dx, dweight, dbias), (workspace, reserve)


def _reserve_byte(library: Library, mode: int, image: Descriptor) -> int:
    kind = c_int(_NORMALIZE_ONLY)
    name = "cudnnGetBatchNormalizationTrainingExReserveSpaceSize"
    return library.size(name, library.handle, mode, kind, None, image.value)
