"""What a GPU says of itself over a window: against a made-up NVML."""

import os
import random
from typing import Any

import pynvml
import pytest

from bench.device import nvml
from bench.device.nvml import limit_names
from bench.worker import telemetry_cuda
from bench.worker.telemetry_cuda import CudaTelemetry, counter_fields, held_shares
from tests.bench import nvml_fake
from tests.bench.nvml_fake import DOUBLE, UNSIGNED_INT, UNSIGNED_LONG_LONG, FakeNvml


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


def pair(**readings: Any) -> tuple[FakeNvml, nvml_fake.Clock]:
    return FakeNvml(**readings), nvml_fake.Clock()


def window(gpu: FakeNvml, clock: nvml_fake.Clock, seconds: float, **run: Any) -> dict[str, Any]:
    """One window of a fresh telemetry in which the GPU's counters advance by `run`."""
    telemetry = CudaTelemetry(gpu.uuid, gpu, clock)
    telemetry.start()
    clock.now_s += seconds
    gpu.run(run.get("held_ns", {}), run.get("energy_mj", 0))
    return telemetry.stop()


def test_every_column_of_a_gpu_by_hand(chance: random.Random) -> None:
    gpu, clock = pair(bits=0x004 | 0x020, pids=[os.getpid(), 4711, 4712])
    gpu.counters(74, 75, 76, 269, 270, 271)
    seconds = chance.uniform(1.5, 20)
    share = {number: chance.uniform(0.05, 0.9) for number in (74, 75, 76, 269, 270, 271)}
    telemetry = CudaTelemetry(gpu.uuid, gpu, clock)
    telemetry.start()
    gpu.sm_mhz, gpu.pids = 1755, [os.getpid(), 4711]
    clock.now_s += seconds
    gpu.run({number: round(part * seconds * 1e9) for number, part in share.items()}, energy_mj=900_000)
    facts = telemetry.stop()
    assert facts == {
        "sm_clock_before_hz": 1980e6,
        "sm_clock_hz": 1755e6,
        "memory_clock_hz": 2619e6,
        "power_w": pytest.approx(900 / seconds),
        "energy_j": pytest.approx(900),
        "temperature_c": 61.0,
        "limit_reasons": "software power cap, software thermal slowdown",
        "held_power": pytest.approx(share[74], abs=1e-6),
        "held_thermal": pytest.approx(max(share[75], share[269], share[270]), abs=1e-6),
        "held_hardware": pytest.approx(share[271], abs=1e-6),
        "held_sync": pytest.approx(share[76], abs=1e-6),
        "foreign_processes": 2,
        "persistence": "on",
        "ecc": "on",
        "mig": "off",
        "power_limit_w": 700.0,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_generation_most": 5,
    }


@pytest.mark.parametrize(
    ("driver", "reasons"),
    [
        ("580.82.07", 269),
        (b"590.44.01", 269),
        ("580.65.06", 251),
        ("535.183.01", 251),
        ("unknown", None),
        (None, None),
    ],
)
def test_counters_by_reason_have_the_drivers_numbers(driver: str | bytes | None, reasons: int | None) -> None:
    """The other numbers exist too, and mean something else: that must never be taken for time."""
    gpu, clock = pair(driver=driver)
    gpu.counters(74, 251, 252, 253, 269, 270, 271)
    held = {number: 10**9 for number in (251, 252, 253, 269, 270, 271)}
    if reasons is not None:
        held |= {reasons: 10**8, reasons + 1: 2 * 10**8, reasons + 2: 4 * 10**8}
    facts = window(gpu, clock, 2.0, held_ns=held)
    wanted = (None, None) if reasons is None else (pytest.approx(0.1), pytest.approx(0.2))
    assert (facts.get("held_thermal"), facts.get("held_hardware")) == wanted
    assert facts["held_power"] == 0.0


def test_our_field_numbers_are_those_of_the_binding() -> None:
    """Of the installed one, which speaks of the newest drivers."""
    named = {74: "SW_POWER_CAP", 76: "SYNC_BOOST", 269: "SW_THERM_SLOWDOWN", 270: "HW_THERM_SLOWDOWN"}
    named[271] = "HW_POWER_BRAKE_SLOWDOWN"
    for number, name in named.items():
        assert getattr(pynvml, f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{name}") == number
    assert pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL == 75
    assert counter_fields("999.0") == {
        **{74: "held_power", 75: "held_thermal", 76: "held_sync"},
        **{269: "held_thermal", 270: "held_thermal", 271: "held_hardware"},
    }
    assert telemetry_cuda.POWER_INSTANT == pynvml.NVML_FI_DEV_POWER_INSTANT
    kinds = ("DOUBLE", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "SIGNED_LONG_LONG")
    kinds += ("SIGNED_INT", "UNSIGNED_SHORT")
    assert [getattr(pynvml, f"NVML_VALUE_TYPE_{kind}") for kind in kinds] == [*range(7)]
    members = {name for name, _ in pynvml.c_nvmlValue_t._fields_}
    assert members == set(nvml.VALUE_KINDS)


def test_the_fake_has_no_function_that_the_binding_lacks() -> None:
    functions = [*(name for name in dir(FakeNvml) if name.startswith("nvml")), *nvml_fake.READINGS]
    assert len(functions) > 10 and all(callable(getattr(pynvml, name)) for name in functions)
    constants = [name for name in dir(FakeNvml) if name.startswith("NVML_")]
    assert all(getattr(pynvml, name) == getattr(FakeNvml, name) for name in constants)


def test_a_counter_that_wraps_or_runs_away_is_null() -> None:
    columns = {74: "held_power", 76: "held_sync", 271: "held_hardware"}
    before = {74: 2.0**64 - 5, 76: 0.0, 271: 10.0}
    after = {74: 100.0, 76: 4e9, 271: 10.0}
    assert held_shares(before, after, columns, 2.0) == {"held_hardware": 0.0}
    # A refresh may bring what belongs to just before the window: more than all of it is all of it.
    assert held_shares({76: 0.0}, {76: 2.5e9}, columns, 2.0) == {"held_sync": 1.0}


def test_energy_that_steps_back_is_null() -> None:
    gpu, clock = pair()
    gpu.fields[186] = (UNSIGNED_INT, 250_000)
    for step in (-1_000_000, 0):
        facts = window(gpu, clock, 5.0, energy_mj=step)
        assert "energy_j" not in facts and facts["power_w"] == pytest.approx(250.0)


def test_over_a_short_window_power_is_read_and_energy_unknown() -> None:
    """NVML refreshes energy every 0.1 s or so: over 0.2 s its difference may be half wrong."""
    gpu, clock = pair()
    gpu.fields[186] = (UNSIGNED_INT, 410_000)
    facts = window(gpu, clock, 0.2, energy_mj=20_000)
    assert facts["power_w"] == pytest.approx(410.0) and "energy_j" not in facts
    facts = window(gpu, clock, 1.0, energy_mj=200_000)
    assert facts["power_w"] == pytest.approx(200.0) and facts["energy_j"] == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("capability", "told"), [((7, 0), True), ((8, 0), True), ((8, 6), False), ((9, 0), False), (None, False)]
)
def test_a_mean_of_the_last_second_is_not_taken_for_power_now(
    capability: tuple[int, int] | None, told: bool
) -> None:
    gpu, clock = pair(capability=capability, usage_mw=100_000)
    facts = window(gpu, clock, 0.2)
    assert facts.get("power_w") == (pytest.approx(100.0) if told else None)
    assert CudaTelemetry(gpu.uuid, gpu, clock).light() is told


@pytest.mark.parametrize(
    ("pids", "wanted"),
    [
        ([os.getpid()], 0),
        # Another namespace's numbers: one of them is ours all the same.
        ([900_001, 900_002, 900_003], 2),
        # Processes outside of the container have no number there.
        ([os.getpid(), 0, 0], 2),
        # A process with two contexts, or in two partitions, is one.
        ([os.getpid(), os.getpid(), 77, 77], 1),
        # A list without even this process tells nothing.
        ([], None),
        (None, None),
    ],
)
def test_foreign_processes(pids: list[int] | None, wanted: int | None) -> None:
    gpu, clock = pair(pids=pids)
    assert window(gpu, clock, 0.1).get("foreign_processes") == wanted


READINGS = {
    "sm_mhz": {"sm_clock_before_hz", "sm_clock_hz"},
    "memory_mhz": {"memory_clock_hz"},
    "energy_mj": {"energy_j", "power_w"},
    "limit_mw": {"power_limit_w"},
    "temperature": {"temperature_c"},
    "bits": {"limit_reasons"},
    "pids": {"foreign_processes"},
    "persistence": {"persistence"},
    "ecc": {"ecc"},
    "mig": {"mig"},
    "pcie_generation": {"pcie_generation"},
    "pcie_width": {"pcie_width"},
    "pcie_generation_most": {"pcie_generation_most"},
}


@pytest.mark.parametrize("reading", list(READINGS))
def test_what_a_gpu_does_not_tell_is_null_and_the_rest_is_there(reading: str) -> None:
    gpu, clock = pair()
    gpu.counters(74, 75)
    everything = window(gpu, clock, 2.0, energy_mj=5).keys()
    setattr(gpu, reading, None)
    assert everything - window(gpu, clock, 2.0, energy_mj=5).keys() == READINGS[reading]


def test_a_gpu_that_falls_off_the_bus_breaks_no_row() -> None:
    gpu, clock = pair()
    gpu.counters(74)
    telemetry = CudaTelemetry(gpu.uuid, gpu, clock)
    telemetry.start()
    clock.now_s += 2
    gpu.lost = True
    facts = telemetry.stop()
    assert facts == {
        **{"persistence": "on", "ecc": "on", "mig": "off", "power_limit_w": 700.0},
        "pcie_generation_most": 5,
        **{"sm_clock_before_hz": 1980e6, "foreign_processes": 0},
    }
    assert telemetry.light() is False and telemetry.clock_hz() is None


@pytest.mark.parametrize("prefix", ["GPU-", "MIG-", ""])
def test_a_part_of_a_gpu_tells_of_its_gpu(prefix: str) -> None:
    """torch gives a part's number without saying that it is one."""
    gpu, clock = pair(mig_uuid="MIG-17", mig=None)
    telemetry = CudaTelemetry(f"{prefix}17", gpu, clock)
    telemetry.start()
    facts = telemetry.stop()
    assert facts["mig"] == "on" and facts["temperature_c"] == 61.0


def test_a_field_of_an_unknown_type_is_not_guessed() -> None:
    gpu, clock = pair()
    gpu.fields = {74: (9, 0), 75: (DOUBLE, 1e9), 186: (UNSIGNED_LONG_LONG, 50_000)}
    facts = window(gpu, clock, 0.5, held_ns={75: 10**8})
    assert "held_power" not in facts
    assert facts["held_thermal"] == pytest.approx(0.2) and facts["power_w"] == pytest.approx(50.0)


def test_light_means_far_from_the_limit_and_held_by_nothing() -> None:
    gpu, clock = pair(limit_mw=500_000)
    gpu.fields[186] = (UNSIGNED_INT, 299_000)
    telemetry = CudaTelemetry(gpu.uuid, gpu, clock)
    assert telemetry.light() is True
    gpu.fields[186] = (UNSIGNED_INT, 300_000)
    assert telemetry.light() is False
    gpu.fields[186] = (UNSIGNED_INT, 100_000)
    for bit in nvml.CLOCK_EVENTS:
        gpu.bits = bit
        assert telemetry.light() is False
    gpu.bits = 0x003  # idle, and clocks somebody has set: neither holds it back
    assert telemetry.light() is True
    gpu.bits = None
    assert telemetry.light() is False
    assert CudaTelemetry(gpu.uuid, FakeNvml(limit_mw=None, fields=gpu.fields), clock).light() is False


def test_names_of_limits() -> None:
    assert limit_names(0) == limit_names(0x1 | 0x2) == ""
    assert limit_names(0x80 | 0x4) == "software power cap, hardware power brake"
    for bit, words in nvml.CLOCK_EVENTS.items():
        short = words.replace("software", "sw").replace("hardware", "hw").title().replace(" ", "")
        (name,) = (name for name in dir(pynvml) if name.startswith(f"nvmlClocksEventReason{short}"))
        assert getattr(pynvml, name) == bit
