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
from collections.abc import Iterator
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

import torch

from bench.spec import Launch, Tensors, Unsupported
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.running import running_statistics
from kernels.tensors import empty

SPATIAL = 1
SPATIAL_PERSISTENT = 2
"""cudnnBatchNormMode_t."""

_TYPE = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}
"""cudnnDataType_t."""
_NORMALIZE_ONLY = c_int(0)
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
        byte = c_size_t()
        self.call(name, *arguments, byref(byte))
        return byte.value


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
    name = f"libcudnn.so.{version // 10_000}"
    try:
        functions = ctypes.CDLL(name)
    except OSError as error:
        raise Unsupported(f"{name} cannot be loaded: {error}") from error
    with torch.cuda.device(device):
        return Library(functions)


def launch(problem: BatchNorm, *tensors: torch.Tensor, mode: int, library: Library | None = None) -> Launch:
    """The problem's outputs as operator.py has them, by cuDNN in this mode, on torch's current stream.

    `library` defaults to the one on the tensors' device.
    """
    x = tensors[0]
    library = library or loaded(x.device.index or 0)
    image, of_channel = Descriptor(library), Descriptor(library)
    library.call("cudnnSetTensor4dDescriptorEx", image.value, _TYPE[x.dtype], *x.shape, *x.stride())
    library.call("cudnnDeriveBNTensorDescriptor", of_channel.value, image.value, mode)
    outputs = empty(problem, x)[:3]
    described = image.value, of_channel.value
    name, arguments, others = _called(library, problem, mode, described, tensors, outputs)
    kept = (image, of_channel, tensors, others)  # cuDNN has their addresses only

    def call() -> Tensors:
        # At each call: a graph is captured on a stream of its own.
        stream = c_void_p(torch.cuda.current_stream(x.device).cuda_stream)
        library.call("cudnnSetStream", library.handle, stream)
        library.call(name, library.handle, mode, *arguments)
        assert kept
        return outputs

    call()  # whether cuDNN can do this shows only now
    return Launch(call, outputs)


def _at(tensor: torch.Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


_Described = tuple[c_void_p, c_void_p]
"""The descriptors of images, and of what belongs to a channel."""


def _called(
    library: Library, problem: BatchNorm, mode: int, described: _Described, tensors: Tensors, outputs: Tensors
) -> tuple[str, tuple[Any, ...], Tensors]:
    """The function, its arguments after handle and mode, and what else must stay alive."""
    x, at, epsilon = tensors[0], [_at(tensor) for tensor in (*tensors, *outputs)], c_double(EPSILON)
    one, zero, (image, channel) = byref(_ONE), byref(_ZERO), described
    if problem.direction == "inference":
        x_at, weight, bias, mean, variance, y = at
        of_images: tuple[Any, ...] = (one, zero, image, x_at, image, y)
        arguments = (*of_images, channel, weight, bias, mean, variance, epsilon)
        return "cudnnBatchNormalizationForwardInference", arguments, ()
    if problem.direction == "forward":
        x_at, weight, bias, y, mean, rstd = at
        running = running_statistics(problem.c, x.device)
        moving = (c_double(MOMENTUM), *map(_at, running))
        spaces = _spaces(library, _OF_FORWARD, mode, (image, None, image, channel), x)
        of_images = (_NORMALIZE_ONLY, one, zero, image, x_at, None, None, image, y)
        arguments = (*of_images, channel, weight, bias, *moving, epsilon, mean, rstd, None, *_given(spaces))
        return "cudnnBatchNormalizationForwardTrainingEx", arguments, (*running, *spaces)
    x_at, dy, weight, mean, rstd, dx, dweight, dbias = at
    spaces = _spaces(library, _OF_BACKWARD, mode, (image, None, image, None, image, channel), x)
    of_images = (image, x_at, None, None, image, dy, None, None, image, dx)
    of_channel = (channel, weight, None, dweight, dbias, epsilon, mean, rstd)
    arguments = (_NORMALIZE_ONLY, one, zero, one, zero, *of_images, *of_channel, None, *_given(spaces))
    return "cudnnBatchNormalizationBackwardEx", arguments, spaces


_OF_FORWARD = "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize"
_OF_BACKWARD = "cudnnGetBatchNormalizationBackwardExWorkspaceSize"


def _spaces(
    library: Library, asked: str, mode: int, descriptors: tuple[c_void_p | None, ...], x: torch.Tensor
) -> Tensors:
    """Workspace and reserve of the size that cuDNN asks for.

    Zeroed, since nothing else fills a reserve without a forward pass.
    """
    of = (library.handle, mode, _NORMALIZE_ONLY)
    sizes = (
        library.size(asked, *of, *descriptors, None),
        library.size("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", *of, None, descriptors[0]),
    )
    workspace, reserve = (torch.zeros(byte, dtype=torch.uint8, device=x.device) for byte in sizes)
    return workspace, reserve


def _given(spaces: Tensors) -> Iterator[Any]:
    """Address and size of each, as arguments."""
    for space in spaces:
        yield from (_at(space), c_size_t(space.numel()))
