"""What our convolution kernels load, by the formulas of their docstrings, counted point by point."""

import itertools
import math

from kernels.convolution.problem import Axis, Convolution
from kernels.gemm.tiles import Tile


def wrapped(counts: list[int], block: int) -> list[int]:
    """What the places of whole tiles hold: past the end they wrap around to the first."""
    return [counts[at % len(counts)] for at in range(-(-len(counts) // block) * block)]


def of_forward(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of x and w that are loaded, by the formula of forward.py: of x every tap in the image."""
    meet = [
        [len([t for t in range(axis.window) if o in axis.meetings(t)[0]]) for o in range(axis.windows)]
        for axis in (problem.rows, problem.columns)
    ]
    pixels = wrapped([high * wide for high in meet[0] for wide in meet[1]] * problem.n, tile.m)
    tiles_n = -(-(problem.k // problem.groups) // tile.n)
    of_w = len(pixels) // tile.m * tiles_n * tile.n * problem.window_h * problem.window_w
    return sum(pixels) * tiles_n * problem.c, of_w * problem.c


def residues(axis: Axis) -> list[tuple[list[int], int]]:
    """Of each residue modulo the stride: the taps within dy that each point has, and the taps in all."""
    every = []
    for residue in range(min(axis.stride, axis.size)):
        points = range(residue, axis.size, axis.stride)
        taps = [
            tap
            for tap in range(axis.window)
            if (residue + axis.padding - tap * axis.dilation) % axis.stride == 0
        ]
        within = [
            sum(
                (i + axis.padding - tap * axis.dilation) // axis.stride in range(axis.windows) for tap in taps
            )
            for i in points
        ]
        every.append((within, len(taps)))
    return every


def of_activation(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of dy and w that are loaded, by the formula of activation_gradient.py."""
    of_dy = of_w = 0
    tiles_n = -(-(problem.c // problem.groups) // tile.n)
    for (high, taps_h), (wide, taps_w) in itertools.product(
        residues(problem.rows), residues(problem.columns)
    ):
        pixels = wrapped([a * b for a in high for b in wide] * problem.n, tile.m)
        of_dy += sum(pixels) * tiles_n * problem.k
        of_w += len(pixels) // tile.m * tiles_n * tile.n * taps_h * taps_w * problem.k
    return of_dy, of_w


def met(problem: Convolution) -> tuple[int, int]:
    """Elements of dy whose window meets the image, and of w at taps that meet any pixel's residue.

    All of them, as `byte_moved` counts, unless padding is as large as the window, the stride is larger than
    the image, or the image fits between two taps of a dilated window.
    """
    axes = problem.rows, problem.columns
    windows = [len({o for t in range(axis.window) for o in axis.meetings(t)[0]}) for axis in axes]
    taps = [
        sum((t * axis.dilation - axis.padding) % axis.stride < axis.size for t in range(axis.window))
        for axis in axes
    ]
    if all(axis.padding < axis.extent and max(axis.stride, axis.dilation) <= axis.size for axis in axes):
        assert (windows, taps) == ([problem.p, problem.q], [problem.window_h, problem.window_w])
    of_w = math.prod(taps) * problem.k * problem.c // problem.groups
    return problem.n * math.prod(windows) * problem.k, of_w


def of_weights(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Elements of dy and x that are loaded, by the formula of weight_gradient.py."""
    meet = [
        [len(axis.meetings(t)[0]) for t in range(axis.window)] for axis in (problem.rows, problem.columns)
    ]
    of_group = problem.c // problem.groups
    pixels = [problem.n * high * wide for high in meet[0] for wide in meet[1] for _ in range(of_group)]
    columns = wrapped(pixels, tile.m)
    tiles_n = -(-(problem.k // problem.groups) // tile.n)
    of_dy = len(columns) // tile.m * tiles_n * tile.n * problem.n * problem.p * problem.q
    return of_dy * problem.groups, sum(columns) * tiles_n * problem.groups
