"""Tensor Cores by the names of kernels: names seen in profiles, and claims that select by the answer."""

from __future__ import annotations

import pytest

from bench.judge.tensor_cores import tensor_cores
from tests.bench.claims_made import claim as claim_of
from tests.bench.claims_made import judged, timed

USED = (
    "volta_h884gemm_128x128_ldg8_nn",
    "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nn",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
    "ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn",
    "_ZN7cutlass7Kernel2I66cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8EEvNT_6ParamsE",
    "cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align16",
    "cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_f32_128x128x64_2x1x1",
    "_ZN7cutlass13device_kernelINS_4gemm10collective13CollectiveMmaINS1_34MainloopSm90TmaGmmaWarpSpecializedE",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16_execute_kernel",
    "sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x32_bias_f32",
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT",
    "nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT",
)
UNUSED = (
    "ampere_sgemm_128x64_tn",
    "volta_fp16_sgemm_fp16_128x128_nt",
    "maxwell_fp16_sgemm_fp16_128x32_nn",
    "_ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nn_align1EEvNT_6ParamsE",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute",
)
UNKNOWN = (
    "_ZN8internal5gemvx6kernelIiifffffLb0ELb1ELb1ELb0ELi7ELb0E18cublasGemvParamsExIi",
    "gemmSN_TN_kernel",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n",
    "triton_tem_fused_mm_0",
    "an_elementwise_kernel_of_16816_elements",
    "?",
)


@pytest.mark.parametrize(
    ("answer", "names"),
    [("used", USED), ("unused", UNUSED), ("unknown", UNKNOWN)],
    ids=["used", "unused", "?"],
)
def test_names_of_kernels_that_were_seen(answer: str, names: tuple[str, ...]) -> None:
    found = {name: tensor_cores(f"{name} grid 16816x1x1 block 128") for name in names}
    assert found == dict.fromkeys(names, answer)


def test_a_row_needs_one_kernel_that_did_or_to_know_that_none_did() -> None:
    used, unused, unknown = USED[0], UNUSED[0], UNKNOWN[0]
    sums = "_ZN8cublasLt19splitKreduce_kernelILi32E grid 8x1x1 block 512"
    asked = {
        f"{unknown}; {used}": "used",
        f"{unused}; {sums}; memset; copy": "unused",
        f"{unused}; {unknown}": "unknown",
        f"{unused}; and 3 more": "unknown",
    }
    assert {kernels: tensor_cores(kernels) for kernels in asked} == asked
    assert tensor_cores(None) == "unknown", "a CPU, or a driver that tells no names"


def test_a_claim_selects_by_it_and_what_is_unknown_counts_for_neither_side() -> None:
    names = [USED[0]] * 30 + [UNUSED[0]] * 30 + [UNKNOWN[0]] * 400
    rows = [timed(1.0, k=4000 + i, kernels=name) for i, name in enumerate(names)]
    share = {"share": {"of": {"tensor_cores": "used"}}, "where": {"tensor_cores": ["used", "unused"]}}
    found = judged(claim_of("share", "above 0.3", **share), rows)
    assert found.verdict == "SUPPORTED"
    assert (found.effect.value, found.effect.lines) == (0.5, 60)
    none = judged(claim_of("share", "above 0.3", **share), rows[60:])
    assert none.verdict == "NOT MEASURED", "names that nobody knows are no evidence"
