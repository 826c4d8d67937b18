"""Do the clocks agree? The same launches timed by ours and by independent instruments in one process.

`python -m bench instruments`. Warm, on one set of tensors, since torch.utils.benchmark knows no ring;
alternating, so that a drift of the machine meets all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch.utils import benchmark

from bench.device import detect
from bench.measure.ring import Turns, launches_per_sample
from bench.measure.sampling import collect
from bench.measure.worker import make_bench

ROUNDS = 5


def _cases() -> list[tuple[str, str, Callable[[], torch.Tensor]]]:
    """(name, statement for torch.utils.benchmark, the same as a call)."""
    cases: list[tuple[str, str, Callable[[], torch.Tensor]]] = []
    for dtype in (torch.float32, torch.bfloat16):
        for n in (512, 1024, 2048):
            a, b = (torch.rand(n, n).mul_(2).sub_(1).to(dtype) for _ in range(2))
            c = torch.empty_like(a)
            cases.append((f"mm {dtype} {n}".replace("torch.", ""), "call()", _mm(a, b, c)))
    x = torch.rand(1 << 26)
    y = torch.empty_like(x)
    cases.append(("copy_ float32 2^26", "call()", lambda: y.copy_(x)))
    return cases


def _mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: torch.mm(a, b, out=c)


def main() -> None:
    """Print the table of medians and ratios, on the CPU."""
    device = detect("cpu")
    torch.set_num_threads(device.sm_count)
    bench = make_bench("cpu", device.cache_byte, 1)
    print(f"{device.name}, {device.sm_count} threads, torch {torch.__version__}; {ROUNDS} alternating rounds")
    print(f"{'launch':<22}{'ours':>11}{'Timer':>11}{'loop':>11}{'ours/Timer':>12}{'ours/loop':>11}")
    for name, statement, call in _cases():
        call()
        ours, timer, loop = [], [], []
        count = launches_per_sample(bench.clock, [call], bench.protocol)
        # num_threads: torch.utils.benchmark sets one thread unless told
        tool = benchmark.Timer(statement, globals={"call": call}, num_threads=device.sm_count)
        for _ in range(ROUNDS):
            turns = Turns(bench.clock, [call], count, False)
            ours.append(collect(turns, bench.protocol, 0.5, time.perf_counter).median_s)
            timer.append(tool.blocked_autorange(min_run_time=0.4).median)
            loop.append(_plain_loop(call))
        a, b, c = median(ours), median(timer), median(loop)
        print(f"{name:<22}{a * 1e6:>9.1f}us{b * 1e6:>9.1f}us{c * 1e6:>9.1f}us{a / b:>12.3f}{a / c:>11.3f}")


def _plain_loop(call: Callable[[], torch.Tensor]) -> float:
    """Seconds of one call in a plain loop of about 0.4 s."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < 0.4:
        call()
        count += 1
    return (time.perf_counter() - begin) / count


if __name__ == "__main__":
    main()
