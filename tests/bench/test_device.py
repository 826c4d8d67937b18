"""Detection, against a CUDA driver compiled here and machines made of folders."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from bench.device import detect as detection
from bench.device import nvml
from bench.device.control_groups import available_byte
from bench.device.datasheet import find_datasheet
from bench.device.detect import detect
from bench.errors import UserError
from tests.bench.nvml_fake import FakeNvml

# ---- GPUs: a CUDA driver of our own

LIBCUDA = Path(__file__).with_name("libcuda_devices.c")
GIVEN = {"NAME": '"NVIDIA GeForce RTX 3090 SUPER"', "MAJOR": 8, "H100_SM": 132}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a libcuda with two GPUs, by default an H100 and an RTX 3090 SUPER; NVML stays silent."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc to compile a driver with")
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(initialised=False))

    def make(**changed: object) -> str:
        library = tmp_path / f"libcuda-{len(list(tmp_path.iterdir()))}.so"
        defines = [f"-D{k}={v}" for k, v in {**GIVEN, **changed}.items()]
        subprocess.run([compiler, "-shared", "-fPIC", *defines, LIBCUDA, "-o", library], check=True)
        return str(library)

    return make


def test_a_known_gpu(driver) -> None:
    found = detect("auto", driver())
    assert found == detect("cuda", driver()) == detect("cuda:0", driver())
    assert (found.kind, found.index, found.name) == ("cuda", 0, "NVIDIA H100 80GB HBM3")
    assert found.slug == "nvidia-h100-80gb-hbm3"
    assert found.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (found.sm_count, found.cache_byte, found.memory_byte) == (132, 52428800, 85520809984)
    assert found.capability == (9, 0)
    assert found.driver == "CUDA 12.8"
    assert found.pci_bus == "0000:1b:00.0" and found.host == socket.gethostname()
    assert found.datasheet == find_datasheet("NVIDIA H100 80GB HBM3")
    assert not found.derived
    assert str(found) == "cuda:0 (NVIDIA H100 80GB HBM3)"


PART = "10111213-1415-1617-1819-1a1b1c1d1e1f"
"""The number of the second GPU; `WHOLE` is the first one's."""
WHOLE = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_an_unknown_gpu_of_a_known_family(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(uuid=f"GPU-{PART}", sm_mhz=1860, memory_mhz=10501, bus_bit=384)
    monkeypatch.setattr(nvml, "pynvml", fake)
    found = detect("cuda:1", driver())
    assert found.uuid == f"GPU-{PART}"
    assert found.slug == "nvidia-geforce-rtx-3090-super-84sm-24gib"
    assert found.derived and found.datasheet is not None
    assert found.datasheet.bandwidth_byte_per_s == 2 * 10501e6 * 384 / 8  # 1008 GB/s, a 3090 Ti's
    assert found.datasheet.peak_flop_per_s("vector", "float32") == 84 * 128 * 2 * 1860e6  # 40e12, a 3090 Ti's
    assert found.datasheet.peak_flop_per_s("matrix", "float16") == 84 * 256 * 2 * 1860e6
    assert found.id != detect("cuda:0", driver()).id
    fake.initialised = False  # then nobody tells its clocks
    silent = detect("cuda:1", driver()).datasheet
    assert silent is not None and silent.derived and silent.peak_flop_per_s("vector", "float32") is None
    assert silent.bandwidth_byte_per_s is None


@pytest.mark.parametrize("known", ["GPU", "MIG"])
def test_nvml_tells_what_is_a_slice_of_a_divided_gpu(driver, monkeypatch, known: str) -> None:
    """And CUDA_VISIBLE_DEVICES takes it as NVML names it."""
    names = {"uuid": "GPU-another", "mig_uuid": f"MIG-{PART}"} if known == "MIG" else {"uuid": f"GPU-{PART}"}
    fake = FakeNvml(**names)
    monkeypatch.setattr(nvml, "pynvml", fake)
    assert detect("cuda:1", driver()).uuid == f"{known}-{PART}"
    assert fake.opened == 0, "what was initialised is shut down"


def test_a_gpu_of_an_unknown_family_has_a_bandwidth_but_no_peaks(
    driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(uuid=f"GPU-{PART}"))
    found = detect("cuda:1", driver(NAME='"NVIDIA R999"', MAJOR=15))
    assert found.derived and found.datasheet is not None
    assert found.datasheet.bandwidth_byte_per_s
    assert not found.datasheet.rates
    assert found.datasheet.peak_flop_per_s("matrix", "float16") is None


def test_a_known_name_with_other_sm_count_is_not_given_the_cards_peaks(
    driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(uuid=f"GPU-{WHOLE}"))
    found = detect("cuda:0", driver(H100_SM=66))
    assert found.derived and found.datasheet is not None
    assert found.datasheet.peak_flop_per_s("vector", "float32") == 66 * 128 * 2 * 1980e6
    assert found.slug == "nvidia-h100-80gb-hbm3-66sm-80gib"


@pytest.mark.parametrize("serial", ["1650522001234", None])
def test_serial_number_and_pci_address_come_with_the_device(
    driver, monkeypatch: pytest.MonkeyPatch, serial: str | None
) -> None:
    library = driver()
    fake = FakeNvml(uuid=detect("cuda:1", library).uuid, serial=serial)
    monkeypatch.setattr(nvml, "pynvml", fake)
    found = detect("cuda:1", library)
    assert (found.pci_bus, found.serial) == ("0000:af:00.0", serial or "")


@pytest.mark.parametrize("wanted", ["cuda:2", "cuda:99"])
def test_a_gpu_that_is_not_there(driver, wanted: str) -> None:
    with pytest.raises(UserError) as raised:
        detect(wanted, driver())
    assert str(raised.value) == (
        f"--bench-device {wanted}: there is no such GPU; "
        "there is cpu, cuda:0 (NVIDIA H100 80GB HBM3), cuda:1 (NVIDIA GeForce RTX 3090 SUPER)"
    )


def test_a_driver_that_fails_leaves_the_cpu_and_says_why_if_a_gpu_was_wanted(driver) -> None:
    library = driver(INIT=803)
    assert detect("auto", library).kind == "cpu"
    with pytest.raises(UserError, match=r"has no CUDA GPU \(.*cuInit with error 803\); there is cpu$"):
        detect("cuda", library)
    assert detection.unusable_gpu(library) == "its CUDA driver answers cuInit with error 803"
    assert detection.unusable_gpu(driver()) == ""
    assert detection.unusable_gpu("no-such-library.so") == ""
    with pytest.raises(UserError, match=r"cuda:1: this machine has no CUDA GPU; there is cpu$"):
        detect("cuda:1", "no-such-library.so")
    assert detect("auto", "no-such-library.so").kind == "cpu"


# ---- the CPU


def test_the_cpu_of_this_machine() -> None:
    found = detect("cpu")
    assert found.kind == "cpu" and found.index is None and found.capability is None and found.uuid == ""
    assert found.datasheet is None and not found.derived
    assert found.host == socket.gethostname() and found.pci_bus == found.serial == ""
    assert found.sm_count >= 1 and found.memory_byte > 2**28 and found.driver
    assert found.slug.startswith("cpu-") and found.slug == found.slug.lower() and "/" not in found.slug
    assert len(found.id) == 12
    assert str(found) == "cpu"
    assert found == detect("cpu")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder with 8 processors on 4 cores; two of them share each of two 32 MiB caches."""

    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")

    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.60GHz\n")
    for n in range(8):
        cpu, core = f"sys/devices/system/cpu/cpu{n}", n % 4
        put(f"{cpu}/topology/thread_siblings_list", f"{core},{core + 4}")
        half = "0-1,4-5" if core < 2 else "2-3,6-7"
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "48K", f"{core},{core + 4}"), (3, "Unified", "32768K", half)]
        ):
            put(f"{cpu}/cache/index{index}/level", str(level))
            put(f"{cpu}/cache/index{index}/type", kind)
            put(f"{cpu}/cache/index{index}/size", size)
            put(f"{cpu}/cache/index{index}/shared_cpu_list", shared)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    return tmp_path


def test_hyperthreads_are_no_cores_and_each_cache_counts_once(machine: Path) -> None:
    found = detect("cpu", root=machine)
    assert found.sm_count == 4
    assert found.cache_byte == 2 * 32 * 2**20
    assert found.slug == "cpu-intel-xeon-platinum-8480-4-core"


@pytest.mark.parametrize(
    ("group", "files", "cores", "byte"),
    [
        ("0::/pod/box", {"pod/box/cpu.max": "200000 100000", "pod/memory.max": "1048576"}, 2, 2**20),
        ("0::/pod/box", {"pod/box/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 1, None),
        ("0::/", {"cpu.max": "350000 100000", "memory.max": "max"}, 3, None),
        (
            "4:cpu,cpuacct:/box\n3:memory:/box",
            {
                "cpu/box/cpu.cfs_quota_us": "250000",
                "cpu/box/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "2097152",
            },
            2,
            2**21,
        ),
    ],
)
def test_the_control_groups_limits_are_honoured(
    machine: Path, group: str, files: dict[str, str], cores: int, byte: int | None
) -> None:
    grouped(machine, group, files)
    found = detect("cpu", root=machine)
    assert found.sm_count == cores
    assert byte is None or found.memory_byte == byte
    assert byte is not None or found.memory_byte > 2**28


def grouped(machine: Path, group: str, files: dict[str, str]) -> None:
    """Put the process into control groups with these files, mounted where systemd mounts them."""
    texts = {"proc/self/cgroup": group} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in texts.items():
        path = machine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("group", "files", "byte"),
    [
        ("0::/", {}, 2**33),
        ("0::/box", {"box/memory.max": "max", "box/memory.current": "4096"}, 2**33),
        # What is left counts, in the group above as well, where a neighbour may have taken it.
        ("0::/pod/box", {"pod/box/memory.max": "5000000", "pod/box/memory.current": "1000000"}, 4_000_000),
        (
            "0::/pod/box",
            {
                **{"pod/box/memory.max": "5000000", "pod/box/memory.current": "1000000"},
                **{"pod/memory.max": "6000000", "pod/memory.current": "4500000"},
            },
            1_500_000,
        ),
        ("3:memory:/box", {"memory/memory.limit_in_bytes": "9", "memory/memory.usage_in_bytes": "2"}, 7),
    ],
)
def test_memory_that_can_still_be_taken(machine: Path, group: str, files: dict[str, str], byte: int) -> None:
    """8 GiB are available, or what the fullest of the control groups has left."""
    grouped(machine, group, files)
    (machine / "proc/meminfo").write_text("MemTotal: 1 kB\nMemAvailable:    8388608 kB\n")
    assert available_byte(machine) == byte
