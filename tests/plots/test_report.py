"""report.html without a browser: what is in it, and that it comes from the rows alone."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import vl_convert
from typer.testing import CliRunner

import kernels
from bench.__main__ import app as bench_app
from bench.case_name import row_name
from bench.cli.claims import judged_rows, verdicts
from bench.store.parquet import write
from bench.store.schema import Measurement
from kernels.latency.problem import Latency
from kernels.stream.problem import Stream
from plots.__main__ import app
from plots.report import page
from tests.plots.report_made import CORE, column, content, few, many, read, written
from tests.plots.report_made import page as page_of
from tests.plots.synthetic import CPU, H100, H200, row

PUBLIC = Path(__file__).parents[2] / "results" / "reference" / "public"


@pytest.fixture(scope="module")
def core() -> tuple[str, dict[str, Any]]:
    text = page_of(CORE)
    return text, content(text)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def section(text: str, name: str) -> str:
    return text.split(f'id="{name}"')[1].split("</section>")[0]


def table(text: str, label: str) -> str:
    return text.split(f'aria-label="{label}"')[1].split("</table>")[0]


def svg(spec: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return vl_convert.vegalite_to_svg(spec | {"datasets": {"rows": rows}})


def test_every_timed_measurement_is_a_case_with_the_row_s_own_numbers(
    core: tuple[str, dict[str, Any]],
) -> None:
    (run,) = read(CORE)
    cases = core[1]["cases"]
    suspects = dict(zip(map(row_name, run.rows), run.frame["suspect"], strict=True))
    rows = {row_name(row): row for row in run.rows if row.is_timed and row.role == "measurement"}
    assert sorted(cases["name"]) == sorted(rows)
    for name, median_s, suspect in zip(cases["name"], cases["median_s"], cases["suspect"], strict=True):
        assert median_s == pytest.approx(rows[name].median_s, rel=1e-3)
        assert bool(suspect) == suspects[name]
    timed = sum(row.is_timed for row in run.rows)
    assert f"{run.frame['suspect'].sum()} of {timed} times are suspect" in core[0]
    assert len(core[0].encode()) < 1.5e6


def test_measured_over_predicted_is_what_it_says(core: tuple[str, dict[str, Any]]) -> None:
    cases = core[1]["cases"]
    frame = read(CORE)[0].frame
    fitted = frame[(frame["role"] == "measurement") & frame["median_s"].notna()]["calibrating"]
    assert sum(cases["calibrating"]) == fitted.sum() > 0
    known = [at for at, value in enumerate(cases["predicted_s"]) if value]
    assert len(known) > 500
    for at in known:
        assert cases["ratio"][at] == pytest.approx(cases["median_s"][at] / cases["predicted_s"][at], rel=2e-3)


def test_a_case_s_command_measures_that_case(core: tuple[str, dict[str, Any]]) -> None:
    cases = core[1]["cases"]
    for name, again in zip(cases["name"][::50], column(cases, "again")[::50], strict=True):
        words = shlex.split(again.replace("{}", name))
        assert words[:3] == ["pytest", "bench/", "--benchmark"]
        assert words[words.index("--bench-case") + 1] == name


def words_of(rules: str) -> Counter[str]:
    return Counter(re.findall(r'class="verdict [^"]*">([^<]*)</span>', rules))


def test_every_claim_stands_there_with_the_verdict_of_the_command(core: tuple[str, dict[str, Any]]) -> None:
    """On the sweeps that the run has; `python -m bench claims` also lists what is not measured at all."""
    there = {row.sweep for row in read(CORE)[0].rows}
    judged = [each for each in verdicts([CORE], kernels.problem, print, print) if each.declared.name in there]
    rules = section(core[0], "rules")
    assert words_of(rules) == Counter(each.verdict for each in judged)
    decided, undecided = rules.split("remain undecided", 1)
    assert ">UNDECIDED<" not in decided and ">SUPPORTED<" not in undecided
    assert ">CONTRADICTED<" in decided and ">CONTRADICTED<" not in undecided


def test_every_chart_can_be_drawn_without_a_browser(core: tuple[str, dict[str, Any]]) -> None:
    known = core[1]
    cases = [{"colour": "a", "at": 0} | _case(known["cases"], at) for at in range(40)]
    for spec in (known["roofline"], known["ratios"]):
        assert "<svg" in svg(spec, cases)
    assert len(known["experiments"]) > 20
    for drawn in known["experiments"][::4]:
        for chart in drawn:
            at = chart["points"]["row"]
            points = {name: [known["cases"][name][place] for place in at] for name in ("median_s", "ratio")}
            points |= {"y": points["median_s"]} | chart["points"]
            rows = [dict(zip(points, values, strict=True)) for values in zip(*points.values(), strict=True)]
            drawn_panels = svg(chart["spec"], rows)
            assert all(panel in drawn_panels for panel in chart["points"]["panel"] if panel)


def _case(cases: dict[str, Any], at: int) -> dict[str, Any]:
    return {name: column(cases, name)[at] for name in cases}


def test_an_experiment_s_points_are_its_sweep_s_timed_rows(tmp_path: Path) -> None:
    known = content(page_of(written(tmp_path / "run.parquet", few())))
    ((chart,),) = known["experiments"]
    names = [known["cases"]["name"][place] for place in chart["points"]["row"]]
    assert len(names) == len(set(names)) == 9 and all(name.startswith("gemm/some-") for name in names)
    for name, x in zip(names, chart["points"]["x"], strict=True):
        assert f"-n{x:.0f}-" in name


def test_what_was_not_measured_stands_there_with_its_reason(tmp_path: Path) -> None:
    part = section(page_of(written(tmp_path / "run.parquet", few())), "untimed")
    assert "skipped" in part and "it needs" in part and "gemm/some" in part
    complete = [row for row in few() if row.is_timed]
    assert "Every case that was asked for has a time." in page_of(
        written(tmp_path / "whole.parquet", complete)
    )


def test_words_from_a_file_are_no_markup(tmp_path: Path) -> None:
    title = "</script><script>alert(1)</script>"
    sweeps = {"gemm/some": {"title": title, "plot": [{"x": "n"}]}}
    text = page_of(written(tmp_path / "run.parquet", few(), sweeps))
    assert title not in text and "&lt;/script&gt;" in text


def test_two_devices_stand_side_by_side_and_their_differences_are_marked(tmp_path: Path) -> None:
    for machine in (H100, H200):
        written(tmp_path / f"{machine.facts['device']}.parquet", few(machine))
    text = page_of(tmp_path)
    assert "NVIDIA H100 80GB HBM3" in text and "NVIDIA H200" in text
    facts = {line.split("</th>")[0]: line for line in table(text, "Facts of the runs").split('scope="row">')}
    assert facts["device"].count("differs") == 1 and ">same<" in facts["driver"]
    known = content(text)
    assert set(column(known["cases"], "device")) == {"h100-sxm", "nvidia-h200"}
    assert 'data-column="device"' in text


def test_implementations_stand_beside_each_other_or_it_is_said_that_none_do(tmp_path: Path) -> None:
    sampled = [replace(row, samples_s=[row.median_s] * 9) if row.median_s else row for row in few(H100)]
    part = section(page_of(written(tmp_path / "gpu.parquet", sampled)), "against")
    assert ">triton<" in part and ">cublas<" in part
    cpu = page_of(written(tmp_path / "cpu.parquet", few(CPU)))
    assert "No case was timed by several implementations" in section(cpu, "against")


def test_too_many_cases_are_refused_with_the_number_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_ROWS", 100)
    file = written(tmp_path / "run.parquet", list(many(101)))
    done = invoke("report", file, "-o", tmp_path / "page.html")
    assert done.exit_code == 2 and "101 timed cases" in done.stderr and "100 cases" in done.stderr
    assert not (tmp_path / "page.html").exists()


PRODUCTS = "device,operator,implementation,dtype,m,n,k,layout,seconds"


def imported(folder: Path, name: str, lines: list[str], head: str = PRODUCTS) -> Path:
    """The rows of a table of times that somebody else measured, as a result file."""
    (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    words = ["import", "csv", folder / f"{name}.csv", "--bench-results", folder / name]
    done = CliRunner().invoke(bench_app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    (path,) = (folder / name).rglob("*.parquet")
    return path


def products(name: str, dtypes: tuple[str, ...] = ("float16",)) -> list[str]:
    sizes = (64, 128, 256, 512)
    return [f"NVIDIA H200,gemm,{name},{dtype},{m},512,512,TN,{m}e-7" for dtype in dtypes for m in sizes]


def test_imported_times_without_an_interval_have_none_on_the_page_and_in_the_table(tmp_path: Path) -> None:
    product = "NVIDIA H200,gemm,cublas,float16,256,512"
    lines = [f"{product},64,TN,1e-5,,", f"{product},128,TN,2e-5,1.9e-5,2.2e-5"]
    path = imported(tmp_path, "times", lines, f"{PRODUCTS},low_s,high_s")
    cases = content(page_of(path))["cases"]
    of_name = zip(cases["name"], cases["median_s"], cases["low_s"], cases["high_s"], strict=True)
    assert sorted(ends for _, *ends in of_name) == [[1e-5, None, None], [2e-5, 1.9e-5, 2.2e-5]]
    lines = CliRunner().invoke(bench_app, ["table", str(path)]).output.splitlines()
    assert [line.split()[3:5] for line in lines if "-cublas-" in line] == [["unknown", "1"], ["±7.5", "%"]]


def test_the_command_writes_one_file_and_says_where_or_why_not(tmp_path: Path) -> None:
    file = written(tmp_path / "run.parquet", few())
    for given, is_written in (
        ("new/pub", "new/pub.html"),
        ("v1.5", "v1.5.html"),
        ("a.HTM", "a.HTM"),
        (".", "report.html"),
    ):
        done = invoke("report", file, "-o", tmp_path / given)
        assert done.exit_code == 0 and done.output.startswith(f"{tmp_path / is_written} ("), done.output
        assert (tmp_path / is_written).is_file()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["pub.html"]
    text = (tmp_path / "new" / "pub.html").read_text()
    # Nothing is fetched: no address is in an attribute that a browser follows by itself.
    assert 'src="' not in text and "<link" not in text and "@import" not in text
    (tmp_path / "taken").write_text("")
    done = invoke("report", file, "-o", tmp_path / "taken" / "page.html")
    assert done.exit_code == 2 and "cannot be written" in done.stderr and "Traceback" not in done.output


@pytest.mark.deep
def test_ten_thousand_cases_make_at_most_3_megabytes(tmp_path: Path) -> None:
    text = page_of(written(tmp_path / "run.parquet", list(many(10_000)), {}))
    assert len(content(text)["cases"]["name"]) == 10_000
    assert len(text.encode()) < 3e6


def test_runs_of_one_device_are_told_apart_in_heads_filters_cases_and_tables(tmp_path: Path) -> None:
    for dtype in ("float16", "float32"):
        both = [*products("cublas", (dtype,)), *products("triton", (dtype,))]
        imported(tmp_path, dtype, both)
    runs = read(tmp_path)
    text = page.html(runs, {}, judged_rows(runs, {}, print), lambda sweep: False)
    known = content(text)
    names = {run.name for run in runs}
    assert len(names) == 2 and known["whose"] == "run"
    assert set(column(known["cases"], "device")) == names == set(known["colours"]["device"])
    heads, rivals = table(text, "The devices side by side"), table(text, "All implementations")
    filters = text.split('data-column="device"')[1].split("</select>")[0]
    for name in names:
        assert f">{name}</th>" in heads and f'value="{name}"' in filters and f"<td>{name}</td>" in rivals


def test_without_a_prediction_there_is_no_chart_of_predictions(tmp_path: Path) -> None:
    text = page_of(imported(tmp_path, "times", products("cublas")))
    assert 'id="roofline"' in text and 'id="ratios"' not in text and 'data-column="bound_by"' not in text
    assert "Imported rows have no intervals" in text
    ours = page_of(written(tmp_path / "run.parquet", few()))
    assert 'id="ratios"' in ours and "Imported rows" not in ours


def test_types_with_the_same_peak_share_a_roof_of_warm_imported_rows_too(tmp_path: Path) -> None:
    path = imported(tmp_path, "times", products("cublas", ("float16", "bfloat16", "float32")))
    roofs = content(page_of(path))["roofline"]["layer"][0]["data"]["values"]
    assert [roof["label"] for roof in roofs if roof["label"]] == [
        "bfloat16, float16, datasheet",
        "float32, datasheet",
    ]
    assert len({roof["roof"] for roof in roofs}) == 2


def test_single_imported_cases_are_no_panels_and_dozens_of_kernels_not_all_lines(tmp_path: Path) -> None:
    def timed(kernel: int, kind: Literal["copy", "read"], length: int) -> Measurement:
        problem = Stream(dtype="float32", kind=kind, length=length)
        facts = {"median_s": kernel * length * 1e-9, "source": "made", "low_s": None, "high_s": None}
        return row(H200, "imported/made/stream", problem, f"k{kernel}", **facts)

    copies = [timed(kernel, "copy", length) for kernel in range(10, 40) for length in (400, 800, 1600)]
    path = write(tmp_path / "run.parquet", [*copies, timed(10, "read", 400)], {})
    text = page_of(path)
    ((chart,),) = content(text)["experiments"]
    assert set(chart["points"]["panel"]) == {"copy"}
    assert set(chart["points"]["line"]) == {f"k{k}" for k in range(10, 22)}
    rivals = table(text, "All implementations")
    assert [f"<td>k{k}</td>" in rivals for k in (10, 21, 22, 39)] == [True, True, False, False]


def test_imported_latencies_are_shown_for_one_step(tmp_path: Path) -> None:
    def timed(footprint: int, steps: int) -> Measurement:
        facts = {"median_s": steps * 4e-7, "low_s": None, "high_s": None, "source": "made"}
        problem = Latency(dtype="float32", footprint_byte=footprint, steps=steps)
        return row(H200, "imported/made/latency", problem, "chase", **facts)

    chains = [timed(2048 * 2**power, 1000 * 2 ** (power // 4)) for power in range(8)]
    ((chart,),) = content(page_of(write(tmp_path / "run.parquet", chains, {})))["experiments"]
    assert chart["points"]["per"] == [1000] * 4 + [2000] * 4


@pytest.mark.parametrize("dense", [True, False])
def test_many_points_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    monkeypatch.setattr(page, "DENSE", 10 if dense else 1000)
    spec = content(page_of(written(tmp_path / "run.parquet", list(many(50)))))["roofline"]
    (points,) = [part["encoding"] for part in spec["layer"] if "params" in part]
    assert points["size"]["value"] == (6 if dense else 26)


def test_suspect_points_are_another_shape_hollow_and_larger(tmp_path: Path) -> None:
    """Drawn: of nine points the three suspect ones alone are diamonds without a filling."""
    known = content(page_of(written(tmp_path / "run.parquet", few())))
    cases = [{"colour": "a", "at": 0} | _case(known["cases"], at) for at in range(9)]
    image = svg(known["roofline"], cases)
    points = re.findall(r'<path aria-label="[^"]*colour: a[^"]*" role="graphics-symbol"[^>]*>', image)
    hollow = [point for point in points if 'fill-opacity="0"' in point]
    assert len(points) == 9 and len(hollow) == sum(known["cases"]["suspect"]) > 0
    shapes = [{re.sub(r"[-0-9.,]+", "", re.findall(r' d="([^"]*)"', one)[0]) for one in some}
              for some in (hollow, [point for point in points if point not in hollow])]  # fmt: skip
    assert len(shapes[0]) == len(shapes[1]) == 1 and shapes[0].isdisjoint(shapes[1])


def test_several_devices_have_every_data_type_and_their_speed_ups(tmp_path: Path) -> None:
    """A data type that one device alone has a peak of is a column of both, which says where it is from."""
    for machine, dtypes in ((H100, ("float16", "float32")), (H200, ("float16",))):
        rows = [one for one in few(machine) if one.arithmetic != "matrix" or one.dtype in dtypes]
        written(tmp_path / f"{machine.facts['device']}.parquet", rows)
    text = page_of(tmp_path)
    heads = table(text, "The devices side by side")
    names = re.findall(r'scope="col">([^<]*)<', heads)
    assert [name for name in names if name.startswith("matrix")] == [
        "matrix products in float16",
        "matrix products in float32",
    ]
    assert "state" not in names
    (second,) = [line for line in heads.split("<tr>") if "NVIDIA H200" in line]
    cells = second.split("<td>")[1:]
    assert len(cells) == len(names) - 1
    assert "by its datasheet; not measured" in cells[names.index("matrix products in float32") - 1]
    gained = section(text, "gained")
    printed = CliRunner().invoke(bench_app, ["compare", str(tmp_path), "--across", "device"]).output
    operators = (" gemm", " stream", " launch")
    lines = [line.split() for line in printed.splitlines() if line.startswith(operators)]
    rows = [re.sub(r"<[^>]*>", " ", line).split() for line in gained.split("<tr>")[2:]]
    assert len(lines) == len(rows) > 2
    for line, cells in zip(lines, rows, strict=True):
        operator, dtype, bound_by, cases, median, low, _, high, *stated = line
        promised = ["of", *stated, "promised"] if stated else []
        wanted = [operator, dtype, "bound", "by", bound_by, median, *promised, low, "to", high, ",", "n", "="]
        assert cells == [*wanted, cases]
    assert 'id="gained"' not in page_of(tmp_path / "h100-sxm.parquet")


def test_the_page_of_public_gpus_decides_what_the_command_decides(tmp_path: Path) -> None:
    judged = verdicts([PUBLIC / "nvidia-h200"], kernels.problem, print, print)
    words = Counter(each.verdict for each in judged)
    assert words["SUPPORTED"] > 3 and words_of(section(page_of(PUBLIC / "nvidia-h200"), "rules")) == words
