"""Batch normalization of a 4-D tensor: each channel is normalized over its batch, rows and columns.

x is [n, c, h, w]; a channel has m = n h w elements. `layout` says how x, y and their gradients lie in memory:
NCHW (each plane of h w elements contiguous) or NHWC (the c channels of a pixel contiguous, torch's
channels_last). What belongs to a channel (weight, bias, mean, variance, 1/deviation) is float32, [c].

    forward    training: mean and variance of x itself; y, and both statistics for the backward pass; the
               running statistics move towards them by MOMENTUM (the variance by m/(m - 1) times itself).
    inference  y from a mean and a variance that are given.
    backward   dx, dweight and dbias of the training pass, from x, dy, weight and the saved statistics.

A CPU's oneDNN also has a batch normalization, but torch reaches it only through tensors in its own opaque
layout, allocated anew by every call; that would time conversions and allocations, so it is left out.

Strongest known: cuDNN in NHWC, measured as `cudnn-persistent`; for 4 x 128 x 1024 x 1024 in float16 on an
H200 912 us forward (TileOPs#2056).
"""

from typing import ClassVar, Literal

from pydantic import model_validator

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import FLOATS, inductor, on_both, on_cuda

Layout = Literal["NCHW", "NHWC"]
Direction = Literal["forward", "inference", "backward"]

EPSILON = 1e-5
"""Added to the variance, as torch does by default."""
MOMENTUM = 0.1
"""Share of the new statistics in the running ones, as torch does by default."""

_READ_AGAIN = {"forward": 1, "inference": 0, "backward": 2}
"""Tensors of x's size that are read a second time, where statistics are a kernel of their own."""


class BatchNorm(Problem):
    """One batch normalization: `direction`, `n`, `c`, `h`, `w`, `layout`, `dtype` of x, y and gradients."""

    operator: ClassVar[str] = "batchnorm"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("cudnn", "torch's cudnn_batch_norm; persistent for NHWC but in inference", FLOATS),
        on_cuda("cudnn-spatial", "cuDNN's CUDNN_BATCHNORM_SPATIAL: x is read at least twice", FLOATS),
        on_cuda("cudnn-persistent", "cuDNN's CUDNN_BATCHNORM_SPATIAL_PERSISTENT: x stays on chip", FLOATS),
        on_both("aten", "torch's own kernels (native_batch_norm and its backward), never cuDNN's"),
        inductor("torch.compile of the formulas"),
        on_cuda("triton", "ours for NCHW: sums, finished by the last program; a pass back (passes.py)"),
    )

    direction: Direction = "forward"
    n: Size
    c: Size
    h: Size
    w: Size
    layout: Layout = "NCHW"

    @model_validator(mode="after")
    def _has_a_variance(self) -> "BatchNorm":
        if self.direction != "inference" and self.channel_elements == 1:
            raise ValueError(
                f"{self.direction} needs more than 1 value per channel: n h w is 1, so there is no variance"
            )
        return self

    @property
    def channel_elements(self) -> int:
        """m = n h w: what is averaged over."""
        return self.n * self.h * self.w

    @property
    def elements(self) -> int:
        """Elements of x."""
        return self.channel_elements * self.c

    @property
    def flop(self) -> int:
        """Nominal, an element: forward 5 (two sums, subtract, scale, add), inference 2, backward 9.

        A convention: operations of a channel are left out, and none of them ever binds.
        """
        return {"forward": 5, "inference": 2, "backward": 9}[self.direction] * self.elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Images, and what belongs to a channel; a training pass moves the running statistics too."""
        image = TensorSpec((self.n, self.c, self.h, self.w), channels_last=self.layout == "NHWC")
        channel = TensorSpec((self.c,), "float32")
        running = "running_mean running_variance"
        read, written = {
            "forward": (f"x weight bias {running}", f"y mean rstd {running}"),
            "inference": ("x weight bias mean variance", "y"),
            "backward": ("x dy weight mean rstd", "dx dweight dbias"),
        }[self.direction]

        def specs(names: str) -> Specs:
            return {name: image if name in ("x", "y", "dx", "dy") else channel for name in names.split()}

        return specs(read), specs(written)

    def byte_again(self, implementation: str) -> int:
        """The second reading of x, backward of x and dy: 3 S are moved in all, 5 S, S being the bytes of x.

        A mean is not known before all of x is read, and y needs the mean: forward reads x twice and writes y.
        The two sums of the backward pass likewise need all of x and dy, and dx needs the sums. That holds for
        aten, triton and inductor by their kernels, for cudnn and cudnn-spatial by the guide's model ("reads
        at least twice"). cudnn-persistent keeps x on chip and moves `byte`, as inference does.
        """
        # For NHWC torch asks for the persistent mode, though not in inference, which reads nothing again.
        if implementation == "cudnn-persistent" or (implementation == "cudnn" and self.layout == "NHWC"):
            return 0
        return _READ_AGAIN[self.direction] * self.elements * self.item_byte

    def refusal(self, implementation: str) -> str:
        """Our kernels take NCHW, and count a channel in 32 bits."""
        if implementation == "triton" and self.layout == "NHWC":
            return "triton normalizes NCHW here, not NHWC"
        if implementation == "triton" and self.channel_elements > 2**31 - 2**20:
            return f"triton counts the {self.channel_elements} elements of a channel in 32 bits"
        return ""

    def probe(self) -> "BatchNorm":
        """At most 8 images of 64 channels of 32 x 32."""
        return self.at_most(n=8, c=64, h=32, w=32)


PROBLEM = BatchNorm
