"""What tiles, waves and caches make of a matrix product: the time of D = A B on a GPU, m x n x k.

D is cut into tiles of tile_m x tile_n, each of which runs along K in steps of 128 bytes; K may be split among
`parts` that are summed afterwards. Of the tiles and splits that libraries have, the quickest counts, unless
the implementation states its tile. In seconds, FLOP and bytes:

    waves   = programs / (SMs * programs an SM holds), a last wave that is not full counted with `tail`
    compute = waves * (steps * max(tile FLOP / (peak / SMs), step_s) + tile_s * sqrt(tile / 128 x 128))
    memory  = bytes * (resident / cache bandwidth + (1 - resident) / bandwidth), fewer SMs draw less
    t       = t0 + (compute^p + memory^p)^(1/p) + split_s where K is split        p = 1 + steps / 16
              + beside * bytes beside / bandwidth where a launch does more than its product

The exponent says that a loop of many steps loads while it multiplies (the larger term counts) and a loop of
none cannot (they add up). What tiles stick out over D, and places of a wave that stay empty, cost EMPTY less
than they would if they worked: idle units draw no power, and a device at its power limit runs the quicker.

Where it comes from: public timings of nn.Linear on nine GPUs. Relatives: the cost model of Stream-K (Osama et
al., PPoPP 2023) for the parts of K, LLMCompass (Zhang et al., ISCA 2024) for tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.model.roofline import Floats

TILES = (
    *((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64), (192, 128)),
    *((128, 192), (16, 64), (16, 128), (32, 64), (32, 128), (64, 16), (64, 32), (128, 32)),
)
"""tile_m x tile_n that libraries have kernels for; narrow ones for the skinny products of small batches."""
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Parts that K is cut into."""
STEP_BYTE = 128
"""Bytes of one row of a tile that one step along K takes: 64 elements of 16 bits."""
SMALL_TILE = 64 * 64
"""Elements of a tile up to which an SM holds two programs."""
EMPTY = 0.12
"""Share of a place's time that is saved where it has nothing to multiply. From NVIDIA's figures of tile and
wave quantization on an A100: plateaus rise by 3 to 5 % from their emptiest end to their fullest."""
OVERLAP_STEPS = 16.0
MOST_OVERLAP = 16.0
"""Beyond this exponent the sum is its larger term."""
MOSTLY_EMPTY = 0.5
"""Share of the waves' places in use below which the tail of the waves binds, not the multiplying."""
RESIDENT_FULL, RESIDENT_NONE = 0.8, 1.25
"""Working sets, as a share of the cache, up to which all of it stays there and from which nothing does."""
NEARER = 2.0
"""One SM draws so many times more from the cache than from memory: bytes in flight over latency, and memory's
latency is 2 to 2.5 times that of L2 on V100 to H100 (pointer chases of te42kyfo/gpu-benches)."""

_ROWS = 2048
"""Launches predicted together: their candidates fit into a core's own cache."""


@dataclass(frozen=True)
class Machine:
    """What a device is to a matrix product of one data type. bench/model/calibration.py fits it."""

    sm_count: int
    cache_byte: int
    flop_per_s: float
    byte_per_s: float
    """Reading memory, all SMs together."""
    launch_s: float
    cached_byte_per_s: float
    """Reading the last-level cache, all SMs together."""
    sm_byte_per_s: float
    """What a single SM draws from memory."""
    step_s: float
    """The least time of a step, however small its tile: the latency of loading and multiplying."""
    tile_s: float
    """Beginning and ending a tile of 128 x 128; of others by the square root of their size."""
    split_s: float
    """Summing the parts of K."""
    tail: float
    """How much of a last wave's empty places is waited for: 1 all (whole tiles), 0 none (shares of them)."""
    beside: float = 2.0
    """How many times longer the other kernels' bytes take than the bandwidth allows."""


class Products(NamedTuple):
    """Launches to predict, each an array [n]; a GPU's only."""

    m: Floats
    n: Floats
    k: Floats
    item_byte: Floats
    byte: Floats
    """What memory or cache must move."""
    working_set: Floats
    """Bytes that launches go through before they come back to the same data."""
    beside: Floats
    """Bytes that a launch moves before its product, such as quantising an operand."""


class PredictedGemms(NamedTuple):
    """Predicted launches, each an array [n]."""

    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    """Moving all bytes, those of other kernels included."""
    cache_share: Floats
    """Part of memory_s that is spent on what the cache holds."""
    used: Floats
    """Share of the places of all waves that had an element of D to compute, 0 to 1."""
    tile: npt.NDArray[np.int64]
    """[n, 2]: the tile."""
    parts: npt.NDArray[np.int64]
    """The parts of K."""


def resident(working_set: npt.ArrayLike, cache_byte: float) -> Floats:
    """Share of a working set that a launch finds in the last-level cache, 0 to 1.

    Caches keep by use and by chance: half of a set that is as large as the cache is still there.
    """
    share = np.asarray(working_set, dtype=np.float64) / cache_byte
    return np.clip((RESIDENT_NONE - share) / (RESIDENT_NONE - RESIDENT_FULL), 0.0, 1.0)


def predict(machine: Machine, products: Products, tile: tuple[int, int] | None = None) -> PredictedGemms:
    """The quickest over tiles and splits; with `tile` that one, unsplit, its last wave waited for whole."""
    launches = [
        Launches(Products(*(part[i : i + _ROWS] for part in products)), machine.sm_count, tile)
        for i in range(0, max(len(products.m), 1), _ROWS)
    ]
    answers = (each.predict(machine) for each in launches)
    return PredictedGemms(*(np.concatenate(parts) for parts in zip(*answers, strict=True)))


class Launches:
    """Launches laid out on a device once, to be predicted for machines that differ in their rates alone."""

    def __init__(self, products: Products, sm_count: int, tile: tuple[int, int] | None = None) -> None:
        """Lay the launches out on devices with so many SMs."""
        self._beside, self._layout = products, _layout(products, tile, sm_count)

    def predict(self, machine: Machine) -> PredictedGemms:
        """The quickest of each launch over tiles and parts, of equal ones the first."""
        of = self._layout
        seconds, compute_s, memory_s, in_cache_s, used = _terms(machine, of)
        tile = seconds.argmin(axis=0)
        order = np.lexsort((seconds[tile, np.arange(len(tile))], of.here))
        parts = order[np.unique(of.here[order], return_index=True)[1]]
        best = tile[parts], parts
        moving_s = memory_s[best]
        byte, working_set = self._beside.beside, self._beside.working_set
        beside_s = machine.beside * memory_terms(machine, byte, working_set, np.ones_like(byte))[0]
        return PredictedGemms(
            seconds=seconds[best] + beside_s,
            compute_s=compute_s[best],
            memory_s=moving_s + beside_s,
            cache_share=in_cache_s[best] / moving_s,
            used=used[best],
            tile=of.tiles[tile[parts]],
            parts=of.parts[parts],
        )


class _Layout(NamedTuple):
    """Launches on the SMs of a device whatever its rates, once for each number of parts of K: [n]; or [tiles,
    n]."""

    here: npt.NDArray[np.intp]
    """Which launch."""
    parts: npt.NDArray[np.int64]
    is_known: bool
    """Whether the tile is the implementation's own."""
    tiles: npt.NDArray[np.int64]
    elements: Floats
    """Elements of D, times the parts."""
    byte: Floats
    working_set: Floats
    area: Floats
    held: Floats
    wave: Floats
    own_steps: Floats
    step_flop: Floats
    """FLOP of a step of all programs that share an SM."""
    drawing: Floats
    """Share of the SMs that draw from memory."""


def _layout(products: Products, tile: tuple[int, int] | None, sm_count: int) -> _Layout:
    tiles = np.array([tile] if tile else TILES, dtype=np.float64)[:, :, None]
    tile_m, tile_n = tiles[:, 0], tiles[:, 1]
    area = tile_m * tile_n
    steps = np.ceil(products.k * products.item_byte / STEP_BYTE)
    usual = np.ceil(products.m / 128) * np.ceil(products.n / 128)
    # K is split to fill a device: in no more parts than fill it twice over.
    most = np.where(usual < 2 * sm_count, 2 * sm_count / usual, 0.0) + 1.0
    splits = np.array((1,) if tile else SPLITS)
    each = splits[:, None]
    which, here = np.nonzero(((steps >= each) & (each < most)) | (each == 1))
    of, parts = Products(*(part[here] for part in products)), splits[which]
    count = np.ceil(of.m / tile_m) * np.ceil(of.n / tile_n) * parts
    held = np.where(area <= SMALL_TILE, 2.0, 1.0)
    # Two programs on an SM halve each other's rate, once there are that many.
    sharing = np.minimum(held, np.maximum(1.0, np.ceil(count / sm_count)))
    return _Layout(
        here=here,
        parts=parts,
        is_known=bool(tile),
        tiles=tiles[:, :, 0].astype(np.int64),
        elements=of.m * of.n * parts,
        byte=of.byte,
        working_set=of.working_set,
        area=area,
        held=held,
        wave=count / (sm_count * held),
        own_steps=np.ceil(steps[here] / parts),
        step_flop=2.0 * area * (STEP_BYTE / of.item_byte) * sharing,
        drawing=np.minimum(count, sm_count) / sm_count,
    )


def _terms(machine: Machine, of: _Layout) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """(seconds, compute, memory, its part in the cache, share of places in use), each [tiles, n]."""
    tail = 1.0 if of.is_known else machine.tail
    waves = np.where(of.wave > 1.0, of.wave + tail * (np.ceil(of.wave) - of.wave), 1.0)
    multiply_s = of.step_flop / (machine.flop_per_s / machine.sm_count)
    of_tile_s = machine.tile_s * np.sqrt(of.area / 128**2)
    of_wave = of.own_steps * np.maximum(multiply_s, machine.step_s) + of_tile_s
    used = np.minimum(1.0, of.elements / (waves * machine.sm_count * of.held * of.area))
    compute_s = waves * of_wave * (1.0 - EMPTY * (1.0 - used))
    memory_s, in_cache_s = memory_terms(machine, of.byte, of.working_set, of.drawing)
    exponent = np.minimum(1.0 + of.own_steps * waves / OVERLAP_STEPS, MOST_OVERLAP)
    longer, shorter = np.maximum(compute_s, memory_s), np.minimum(compute_s, memory_s)
    both_s = longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent)
    seconds = machine.launch_s + both_s + np.where(of.parts > 1, machine.split_s, 0.0)
    return seconds, compute_s, memory_s, in_cache_s, used


def memory_terms(
    machine: Machine, byte: Floats, working_set: Floats, drawing: Floats
) -> tuple[Floats, Floats]:
    """(seconds of moving these bytes, the part spent on what the cache holds).

    `drawing` is the share of the SMs that move them. All are arrays [n], or broadcast to each other.
    """
    inside = resident(working_set, machine.cache_byte)
    by_sms = machine.sm_byte_per_s * machine.sm_count
    in_cache_s = inside * byte / _drawn(machine.cached_byte_per_s, NEARER * by_sms, drawing)
    in_memory_s = (1.0 - inside) * byte / _drawn(machine.byte_per_s, by_sms, drawing)
    return in_cache_s + in_memory_s, in_cache_s


def _drawn(all_byte_per_s: float, by_sms: float, drawing: Floats) -> Floats:
    """Bandwidth when this share of the SMs draws: what they can draw, and all there is, the lesser rounded.

    `by_sms` is what all SMs could draw; with all of them drawing the result is `all_byte_per_s`, measured so.
    """
    ratio = all_byte_per_s / by_sms
    rounded = (1.0 + ratio**4) / (1.0 + (ratio / drawing) ** 4)
    return np.asarray(all_byte_per_s * np.sqrt(np.sqrt(rounded)))
