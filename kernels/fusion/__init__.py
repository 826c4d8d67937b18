"""Chains of element-wise operators after a GEMM, one kernel a step or fused."""
