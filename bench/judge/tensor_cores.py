"""Whether a launch ran on Tensor Cores, read from the names of its kernels.

Libraries write the matrix instruction, or a family that is built on one, into the name of a kernel. A name
that no pattern knows is unknown: it is never taken for a kernel without Tensor Cores.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Answer = Literal["used", "unused", "unknown"]

NAMES: tuple[tuple[str, Answer], ...] = (
    # The shape of the instruction: volta_h884gemm_..., ampere_bf16_s16816gemm_..., ..._i16832gemm_s8_...
    # The list of NVIDIA/PyProf, pyprof/prof/tc.py, without its names of cuDNN 7 and without `xmma_gemm`.
    (r"[cdhis](884|1688|8816|16816|16832)(gemm|cudnn|fprop|dgrad|wgrad)|hmma", "used"),
    # CUTLASS, and what cuBLAS takes from it: OpcodeClassNames of NVIDIA/cutlass,
    # python/cutlass_library/library.py, are simt, tensorop, wmma_tensorop, sptensorop and bstensorop.
    (r"tensorop", "used"),
    (r"_simt_", "unused"),
    # CUTLASS 3 where a kernel is called by its types: MainloopSm90TmaGmmaWarpSpecialized and
    # MainloopSm100TmaUmma... of include/cutlass/gemm/dispatch_policy.hpp.
    (r"Sm\d+\w*(Gmma|Umma)", "used"),
    # cuBLAS and TensorRT. sm89_xmma_gemm_e4m3e4m3_..._tensor16x8x32_... states the instruction;
    # sm90_xmma_gemm_f16f16_..._warpgroupsize1x1x1_... (NVIDIA/TensorRT-LLM, issue 1541) multiplies by groups
    # of warps, as wgmma alone does; sm80_xmma_gemm_f32f32_..._ffma_aligna4_... states that of single threads.
    (r"xmma_\w*(_tensor\d+x\d+x\d+|warpgroupsize)", "used"),
    (r"xmma_\w*_ffma_", "unused"),
    # cuBLAS from Hopper on: nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT (NVIDIA/Fuser, issue 3279), at 77 % of
    # the float16 peak of an H100, which no other unit reaches (GindaChen/nsys-ai, pull request 582).
    (r"nvjet_", "used"),
    # cuBLAS without the shape of an instruction: ampere_sgemm_128x64_tn, volta_fp16_sgemm_fp16_128x128_nt.
    # Maxwell, which has no Tensor Cores, has kernels of these names: maxwell_fp16_sgemm_fp16_128x32_nn.
    (r"(maxwell|pascal|volta|turing|ampere)_(fp16_)?[dhs]gemm_", "unused"),
    # What accompanies a product: other nodes of the graph, cuBLASLt's sum over the parts of K.
    (r"^(copy|memset)$|splitKreduce_kernel", "unused"),
)
"""Patterns, and what a name that has one says; the first counts. Mangled names hold the same text."""


def tensor_cores(kernels: str | None) -> Answer:
    """`used` if one of a row's kernels did, `unused` if it is known of each that it did not."""
    answers = [_answer(kernel.split(" grid ")[0]) for kernel in (kernels or "?").split("; ")]
    if "used" in answers:
        return "used"
    return "unused" if set(answers) == {"unused"} else "unknown"


@lru_cache(maxsize=1 << 12)
def _answer(name: str) -> Answer:
    return next((answer for pattern, answer in NAMES if re.search(pattern, name)), "unknown")
