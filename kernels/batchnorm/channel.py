"""What the kernels of both layouts do for a channel, once its sums are known.

**Sums about a shift.** The forward sums are of d = x - shift and of d^2, where the shift is the channel's
first element: like any value of the channel it is near the mean, as the deviation measures it, so that

    mean = shift + sum d / m        variance = sum d^2 / m - (sum d / m)^2

subtracts numbers of the size of the variance. About 0 they would be of the size of mean^2, and a mean of 1000
with a deviation of 2 would leave a float32 variance without a correct digit.

**The last program finishes.** Programs that share a channel write their sums into `partials` and count
themselves on the channel's counter. Whoever arrives last adds up the partials, always in the same order: no
third launch, no program waits for another, no atomic addition of data, and the same bits every time. It also
sets the counter back to 0, so that the next launch finds it so.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

TAKEN = tl.constexpr(128)
"""Partials of a channel added up at once."""


@triton.jit
def arrives_last(counter, programs):
    """Whether this is the last of `programs` programs to come here; the counter is then 0 again.

    What the others stored before they came is then visible past the first-level cache.
    """
    tl.debug_barrier()  # the atomic publishes what all threads of this program have stored
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def finish_statistics(
    channel, inside, shift, sum_d, sum_dd, count, pointers, EPSILON: tl.constexpr, MOMENTUM: tl.constexpr
):
    """Store mean and 1/deviation, move the running statistics. Returns 1/deviation.

    `channel`, a scalar or a block, is which channels, `inside` which of them exist, `count` m, their
    elements. `pointers`, all to [c], are of mean, 1/deviation, running mean and running variance.
    """
    mean_pointer, rstd_pointer, running_mean_pointer, running_variance_pointer = pointers
    m = tl.cast(count, tl.float32)
    delta = sum_d / m
    mean = shift + delta
    variance = sum_dd / m - delta * delta
    variance = tl.where(variance < 0.0, 0.0, variance)  # a maximum would hide NaN
    rstd = 1.0 / tl.sqrt_rn(variance + EPSILON)
    tl.store(mean_pointer + channel, mean, mask=inside)
    tl.store(rstd_pointer + channel, rstd, mask=inside)
    running = tl.load(running_mean_pointer + channel, mask=inside, other=0.0)
    tl.store(running_mean_pointer + channel, running + MOMENTUM * (mean - running), mask=inside)
    running = tl.load(running_variance_pointer + channel, mask=inside, other=0.0)
    unbiased = variance * (m / (m - 1.0))
    tl.store(running_variance_pointer + channel, running + MOMENTUM * (unbiased - running), mask=inside)
    return rstd
