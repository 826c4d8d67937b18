"""Scaled dot-product attention of several heads, and its three gradients.

    forward    s = q k^T / sqrt(head_width)     p = softmax of each row of s     o = p v
    backward   dq, dk and dv of q, k, v, o, lse and do:
               p = exp(s - lse)     ds = p (do v^T - the sum over the row of do o)
               dv = p^T do     dq = ds k / sqrt(head_width)     dk = ds^T q / sqrt(head_width)

    q, o, do, dq    [batch, heads, q_length, head_width]
    k, v, dk, dv    [batch, kv_heads, kv_length, head_width]
    lse             [batch, heads, q_length], float32: ln of the sum over the row of exp(s)

All are contiguous and in the problem's data type, but for lse. Neighbouring heads of queries may share one
head of keys and values: `kv_heads` divides `heads` (grouped-query attention; with one for all, multi-query).
With `causal`, query i sees keys 0 to i. That is defined for equal lengths only: with others, torch aligns the
mask to the first key and FlashAttention to the last.

lse is what a forward pass leaves to the backward pass so that p need not be kept. It is an input of the
gradients, but no output of the forward pass here, since inference has no use for it; bytes of implementations
that write it nevertheless are counted.

Strongest known: FlashAttention 4 on Hopper and Blackwell, which is not measured here, and cuDNN, as `cudnn`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from bench.spec import Dtypes, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.implementations import AMPERE, FLOATS, PRODUCTS, VOLTA, inductor, on_both, on_cpu, on_cuda

Direction = Literal["forward", "backward"]


WIDEST = 256
"""Widest head of FlashAttention 2."""
WIDEST_CUDNN = 128
"""Widest head of cuDNN on every GPU that it has kernels for; some go to 256."""

_SIXTEEN_BIT: Dtypes = {"float16": AMPERE, "bfloat16": AMPERE}


class Attention(MatrixProblem):
    """One pass: `direction`, the sizes above, `causal`, `dtype`; `kv_length` is `q_length` unless given.

    Raises ValueError where kv_heads does not divide heads, and for a causal mask over different lengths.
    """

    operator: ClassVar[str] = "attention"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("flash", "FlashAttention 2 in torch", _SIXTEEN_BIT),
        on_cuda("cudnn", "cuDNN's fused attention through torch", _SIXTEEN_BIT),
        on_cuda(
            "efficient", "the CUTLASS kernels of xFormers in torch", {"float16": VOLTA, "bfloat16": AMPERE}
        ),
        on_both("unfused", "bmm, softmax, bmm in the data type, scores preallocated; backward five products"),
        inductor("torch.compile: flex_attention, forward", PRODUCTS),
        on_cpu("flash-cpu", "torch's own fused attention on a CPU", FLOATS),
    )

    direction: Direction
    batch: Size
    heads: Size
    kv_heads: Size
    q_length: Size
    kv_length: Size = 1
    head_width: Size
    causal: bool = False

    @model_validator(mode="before")
    @classmethod
    def _keys_of_the_queries(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {"kv_length": given["q_length"]} | given if "q_length" in given else given

    @model_validator(mode="after")
    def _possible(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if self.causal and self.q_length != self.kv_length:
            raise ValueError(
                f"a causal mask needs equal lengths, not {self.q_length} queries and {self.kv_length} keys"
            )
        return self

    def parameters(self) -> dict[str, int | float | bool | str]:
        """`kv_length` only where it differs from `q_length`."""
        given = super().parameters()
        return {n: v for n, v in given.items() if n != "kv_length" or v != self.q_length}

    @property
    def group(self) -> int:
        """Heads of queries that share one head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, over all heads."""
        of_head = self.q_length * self.kv_length
        if self.causal:
            of_head = self.q_length * (self.q_length + 1) // 2
        return self.batch * self.heads * of_head

    @property
    def flop(self) -> int:
        """4 head_width for each pair forward, two products; 10 backward, five: that of the scores again."""
        return {"forward": 4, "backward": 10}[self.direction] * self.pairs * self.head_width

    @property
    def special_functions(self) -> int:
        """An exponential for each pair, in both directions."""
        return self.pairs

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Forward: q, k, v and o. Backward: o, lse and do too, and dq, dk and dv."""
        q = TensorSpec((self.batch, self.heads, self.q_length, self.head_width))
        k = TensorSpec((self.batch, self.kv_heads, self.kv_length, self.head_width))
        forward = {"q": q, "k": k, "v": k}
        if self.direction == "forward":
            return forward, {"o": q}
        saved = {"o": q, "lse": TensorSpec(q.shape[:3], "float32"), "do": q}
        return forward | saved, {"dq": q, "dk": k, "dv": k}

    @property
    def q_byte(self) -> int:
        """Bytes of q, of o, and of the gradient of either."""
        return self.byte_of(self.tensors[0]["q"])

    @property
    def lse_byte(self) -> int:
        """Bytes of lse, float32."""
        return self.batch * self.heads * self.q_length * 4

    def read_once(self, implementation: str) -> int:
        """The inputs, but for o and lse in the unfused backward pass: it has the whole of p."""
        unread = self.direction == "backward" and implementation == "unfused"
        return self.byte_read - (self.q_byte + self.lse_byte if unread else 0)

    def byte_again(self, implementation: str) -> int:
        """The intermediate results, scores above all, which are read soon after they are written.

        A fused implementation keeps scores on the chip. What else its backward pass keeps in memory, such as
        FlashAttention's sums of dq in float32, is not counted: it is too little to be the limit.
        """
        return self._intermediate_byte(implementation)[1]

    def moved_written(self, implementation: str) -> int:
        """The outputs, lse where a forward pass writes it, and the intermediate results."""
        written, _ = self._intermediate_byte(implementation)
        if self.direction == "forward" and implementation in ("flash", "flash-cpu"):
            written += self.lse_byte
        return self.byte_written + written

    def _intermediate_byte(self, implementation: str) -> tuple[int, int]:
        """Bytes of intermediate results that are written, and that are read.

        `unfused` forward writes s and p, and with a mask s again; each is read once. Backward it writes and
        reads s and p by the same steps, and dp and ds; p is read for dv and for ds, ds for dq and for dk.
        """
        scores = self.batch * self.heads * self.q_length * self.kv_length
        if implementation == "unfused":
            written, read = (2, 2) if self.direction == "forward" else (4, 6)
            masked = int(self.causal)
            return (written + masked) * scores * self.item_byte, (read + masked) * scores * self.item_byte
        return 0, 0

    def refusal(self, implementation: str) -> str:
        """What each library's kernels lack: widths of a head, groups, lengths, or a backward pass."""
        width = self.head_width
        if implementation in ("flash", "cudnn", "efficient") and width % 8:
            return f"{implementation} takes heads whose width is a multiple of 8, not {width}"
        limits = {"flash": WIDEST, "cudnn": WIDEST_CUDNN}
        widest = limits.get(implementation, width)
        if width > widest:
            return f"{implementation} takes heads up to {widest} wide, not {width}"
        if implementation == "cudnn" and self.kv_length == 1:
            return "cudnn takes two keys and more"
        if implementation == "efficient" and self.group > 1:
            return "efficient takes as many heads of keys as of queries"
        if implementation == "inductor" and self.direction == "backward":
            return "inductor has its backward pass behind autograd only, which no time here contains"
        return ""

    def probe(self) -> Attention:
        """One batch of one group of heads, of up to 256 queries and keys."""
        return self.at_most(batch=1, heads=self.group, kv_heads=1, q_length=256, kv_length=256)


PROBLEM = Attention
