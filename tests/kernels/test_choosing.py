"""What operators share: torch.compile for one problem at a time, and choosing a configuration."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
from bench.launching import inductor
from bench.spec import Unsupported
from kernels.stream.problem import Stream
from tests.kernels.devices import Tuner


def doubled(problem: Stream, x: torch.Tensor) -> torch.Tensor:
    return x * 2 + problem.length


def test_every_problem_of_a_long_sweep_is_compiled_and_none_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamo compiles a function for eight shapes and refuses the ninth."""
    compiled: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        compiled.append(module)
        return module

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: compile_(*a, **k, backend=backend))
    for length in range(1, 11):
        problem = Stream(dtype="float32", kind="copy", length=length)
        for _ in range(3):  # as slots of a ring ask
            x = torch.ones(length)
            assert torch.equal(inductor.compiled(doubled, problem)(x), x * 2 + length)
        assert len(compiled) == length
    inductor.compiled.cache_clear()


class Device(Tuner):
    """On which launches of large candidates do not fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.seconds = {"a": 3e-5, "b": 1e-5, "c": 2e-5}
        self.calls = dict.fromkeys(("large", "larger"), self._no_room)

    def _no_room(self) -> None:
        raise self.tuning.OutOfResources(300_000, 232_448, "shared memory")

    def fastest(self, question: str, candidates: list[str]) -> str:
        return self.tuned(candidates, question).configuration


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    return Device(monkeypatch, tmp_path / "tuned")


def test_the_fastest_candidate_that_fits_is_chosen_once(device: Device) -> None:
    candidates = ["large", "a", "b", "c"]
    assert device.fastest("one", candidates) == "b"
    assert device.fastest("one", candidates) == "b"
    assert device.timed == ["a", "b", "c"]
    assert device.fastest("another", candidates[:2]) == "a"
    assert device.fastest("single", ["c"]) == "c"  # nothing to choose, nothing to time
    assert device.timed == ["a", "b", "c", "a"]


def test_no_launch_is_under_way_when_the_next_is_tried_or_timed(device: Device) -> None:
    """Two launches of split-K may share a workspace."""
    device.fastest("one", ["a", "large", "b"])
    assert device.events == ["a", "waited", "large", "b", "waited", "time", "a", "b"]


def test_a_check_takes_the_first_candidate_that_runs_and_chooses_nothing(device: Device) -> None:
    with device.tuning.first_that_compiles():
        assert device.fastest("one", ["large", "a", "b"]) == "a"
        launch = device.tuned(["large", "a", "b"])
        assert launch.tuning_s == 0 and len(launch.passed_over) == 1
        with pytest.raises(Unsupported, match="none of 2"):
            device.fastest("one", ["large", "larger"])
    assert device.timed == [] and not device.folder.exists()
    assert device.fastest("one", ["large", "a", "b"]) == "b"


def test_if_none_fits_the_device_says_why(device: Device) -> None:
    with pytest.raises(
        Unsupported, match=r"none of 2 configurations can run on this device; .*shared memory"
    ):
        device.fastest("one", ["large", "larger"])


def test_a_choice_outlives_the_process_but_not_its_driver(device: Device) -> None:
    candidates = ["a", "b", "c"]
    device.fastest("one", candidates)
    device.start()
    assert device.fastest("one", candidates) == "b"
    assert len(device.timed) == 3  # read back
    device.start(driver=12_080)
    device.seconds["c"] = 1e-6
    assert device.fastest("one", candidates) == "c"
    assert len(device.timed) == 6  # asked anew
    device.start()
    assert device.fastest("one", candidates) == "b"
    assert len(device.timed) == 6  # what the other driver chose is kept beside it
    assert [versions.split(", ")[-1] for versions in device.written] == [
        "CUDA driver 12.8",
        "CUDA driver 13.0",
    ]
    assert device.tuning.versions() in device.written


SOURCES = Path(kernels.__file__).parent
LAUNCHING = Path(inductor.__file__).parent


@pytest.mark.parametrize(
    ("operator", "edited", "anew"),
    [
        ("stream", "stream/problem.py", True),
        ("softmax", "layernorm/rows.py", True),
        ("quantize", "layernorm/rows.py", True),
        ("linear", "batchnorm/channel.py", True),
        ("linear", "gemm/tma.py", True),  # by way of gemm/choosing.py
        ("fusion", "../bench/launching/timing.py", True),  # imported where it is needed
        ("layernorm", "softmax/rows.py", False),
        ("softmax", "layernorm/forward.py", False),
        ("softmax", "gemm/blocks.py", False),
        ("gemm", "pooling/forward.py", False),
    ],
)
def test_a_choice_does_not_outlive_the_source_of_its_kernels(
    operator: str, edited: str, anew: bool, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SOURCES, tmp_path / "kernels", ignore=shutil.ignore_patterns("tuned", "__pycache__"))
    shutil.copytree(LAUNCHING, tmp_path / "bench" / "launching")
    monkeypatch.setattr(device.tuning, "_ROOT", tmp_path)
    device.start()
    device.tuning.tuned((operator, "one"), ["a", "b"], device.launch)
    device.start()
    device.tuning.tuned((operator, "one"), ["a", "b"], device.launch)
    assert device.timed == ["a", "b"]
    (tmp_path / "kernels" / edited).open("a").write("# edited\n")
    device.start()
    device.tuning.tuned((operator, "one"), ["a", "b"], device.launch)
    assert device.timed == ["a", "b"] * (2 if anew else 1)
    (by_source,) = device.written.values()
    assert len(by_source) == (2 if anew else 1)  # what the other sources chose is kept beside it


def test_names_of_modules_are_put_together_only_within_an_operator() -> None:
    """For the tuner reads the names of all others in the sources."""
    for path in SOURCES.glob("*/*.py"):
        for name in re.findall(r"import_module\((.*)", path.read_text()):
            assert name.startswith(f'f"kernels.{path.parent.name}.'), path
        for operator in re.findall(r'launched_by\(f?"(\w+)', path.read_text()):
            assert operator == path.parent.name, path


def test_what_another_process_has_chosen_meanwhile_is_not_asked_again(device: Device) -> None:
    device.fastest("one", ["a", "b", "c"])
    others = device.path.read_text().replace('"one"', '"two"').replace('"b"', '"c"')
    device.path.write_text(others)
    assert device.fastest("two", ["a", "b", "c"]) == "c"
    assert device.fastest("one", ["a", "b", "c"]) == "b"
    assert device.timed == ["a", "b", "c"]


def test_a_choice_that_is_no_longer_listed_is_not_used(device: Device) -> None:
    device.fastest("one", ["a", "b"])
    assert device.fastest("one", ["a", "c"]) == "c"
    assert device.timed == ["a", "b", "a", "c"]


def test_what_is_written_can_be_read_by_a_person(device: Device) -> None:
    device.fastest("bfloat16 TN 4096x4096x1024", ["a", "b"])
    device.fastest("bfloat16 NN 64x64x64", ["a", "b"])
    text = device.path.read_text()
    ((answers,),) = (operators.values() for operators in device.written.values())
    answer = answers["bfloat16 TN 4096x4096x1024"]
    assert answer.pop("tuning_s") >= 0
    assert answer == {"configuration": "b", "median_us": 10.0, "of": 2}
    assert [line.split('"')[1] for line in text.splitlines() if "configuration" in line] == [
        "bfloat16 NN 64x64x64",
        "bfloat16 TN 4096x4096x1024",
    ]


def test_a_folder_that_cannot_be_written_to_costs_the_memory_of_a_process(
    device: Device, tmp_path: Path
) -> None:
    device.folder = tmp_path / "file" / "tuned"
    (tmp_path / "file").write_text("not a folder")
    device.start()
    assert device.fastest("one", ["a", "b"]) == device.fastest("one", ["a", "b"]) == "b"
    assert device.timed == ["a", "b"]


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_a_file_that_is_no_longer_whole_is_made_anew(device: Device, text: str) -> None:
    device.folder.mkdir()
    device.path.write_text(text)
    device.start()
    assert device.fastest("one", ["a", "b"]) == "b"
    assert list(device.written) == [device.tuning.versions()]


def test_all_candidates_are_compiled_before_the_first_is_timed(device: Device) -> None:
    compiled: list[str] = []

    def compile_(candidate: str) -> None:
        assert not device.timed
        compiled.append(candidate)

    device.tuning.tuned(("stream", "one"), ["large", "a", "b"], device.launch, compile_)
    assert compiled == ["large", "a", "b"]
    assert device.timed == ["a", "b"]
