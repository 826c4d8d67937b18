"""How long each of several launches takes."""

from collections.abc import Callable, Sequence

import triton


def seconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of one call of each."""
    return [1e-3 * triton.testing.do_bench_cudagraph(call, rep=2, return_mode="median") for call in calls]
