"""What in a process's environment chooses the code that computes: variables, and settings of torch."""

from __future__ import annotations

import os
import re
from operator import attrgetter

NAMES = re.compile(
    "ATEN_CPU_CAPABILITY|GLIBC_TUNABLES|CUDA_FORCE_PTX_JIT"
    r"|(MKL|ONEDNN|DNNL|OMP|GOMP|KMP|OPENBLAS|CUBLAS|CUBLASLT|CUDNN|TRITON|TORCHINDUCTOR|TORCHDYNAMO)_\w+"
    r"|TORCH_((BLAS|LINALG)_PREFER|CUDNN|MKLDNN|ALLOW_TF32|LINEAR|COMPILE)_\w+"
)
"""Variables of the libraries that compute, and no others: an environment has secrets, too."""
VALUE = re.compile(r"[\w.,:;+=(){}|*-]{1,200}")
"""A value that is kept, without its blanks: no path, which chooses no code."""
USUAL = {
    "cuda.matmul.fp32_precision": ("none", "ieee"),
    "cudnn.conv.fp32_precision": ("none", "tf32"),
    "mkldnn.matmul.fp32_precision": ("none", "ieee"),
    "mkldnn.conv.fp32_precision": ("none", "ieee"),
}
"""Setting of torch.backends -> its values that a row need not say: torch's own, or what each case sets."""


def chosen_code() -> str:
    """`MKL_CBWR=COMPATIBLE cpu_capability=AVX512`: the column `environment` of what is measured now, here."""
    import torch

    given = {name: "".join(value.split()) for name, value in os.environ.items() if NAMES.fullmatch(name)}
    found = {name: value for name, value in given.items() if VALUE.fullmatch(value)}
    settings = {name: str(attrgetter(name)(torch.backends)) for name in USUAL}
    found |= {name: value for name, value in settings.items() if value not in USUAL[name]}
    found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))


def environment_change(before: str | None, after: str | None) -> str:
    """`MKL_CBWR not set -> COMPATIBLE`: in what two such columns differ; empty if one is unknown."""
    if not before or not after:
        return ""
    one, other = (dict(part.split("=", 1) for part in text.split(" ")) for text in (before, after))
    names = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    return ", ".join(f"{name} {one.get(name, 'not set')} -> {other.get(name, 'not set')}" for name in names)
