"""report.html without a browser: what is in it, and that it comes from the rows alone."""

import base64
import dataclasses
import gzip
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app as bench_app
from bench.case_name import row_name
from bench.cli.claims import verdicts
from bench.device.datasheet import find_datasheet
from bench.judge.read_runs import load
from bench.judge.speedup import compared, gains, speedups
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from plots.__main__ import app
from plots.report import cases as every_case
from plots.report import claims, devices, experiments
from plots.report import machine as the_machine
from tests.plots.report_made import CORE, column, content, few, many, read, written
from tests.plots.report_made import page as page_of
from tests.plots.synthetic import CPU, H100, H200, NO_TIME, row, small

DRAWING = re.compile(r'aria-label="([^"]*)" style="[^"]*" data-svg="([^"]*)"')
"""What a figure of a page shows, and its SVG as it is packed."""
PUBLIC = Path(__file__).parents[2] / "results" / "reference" / "public"


@pytest.fixture(scope="module")
def core() -> tuple[str, dict[str, Any]]:
    text = page_of(CORE, (the_machine.section, claims.section, every_case.section))
    return text, content(text)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def words(done: Any, folder: Path) -> str:
    """The page that a command has written, with single blanks."""
    assert done.exit_code == 0, done.output
    return " ".join((folder / "all.html").read_text("utf-8").split())


def section(text: str, name: str) -> str:
    return text.split(f'id="{name}"')[1].split("</section>")[0]


def table(text: str, label: str) -> str:
    return text.split(f'aria-label="{label}"')[1].split("</table>")[0]


def test_every_timed_measurement_is_a_case_with_the_row_s_own_numbers(
    core: tuple[str, dict[str, Any]],
) -> None:
    (run,) = read(CORE)
    cases = core[1]["cases"]
    suspects = dict(zip(map(row_name, run.rows), run.frame["suspect"], strict=True))
    rows = {row_name(one): one for one in run.rows if one.is_timed and one.role == "measurement"}
    assert sorted(cases["name"]) == sorted(rows)
    for name, median_s, suspect in zip(cases["name"], cases["median_s"], cases["suspect"], strict=True):
        assert median_s == pytest.approx(rows[name].median_s, rel=1e-3)
        assert bool(suspect) == suspects[name]
    timed = sum(one.is_timed for one in run.rows)
    assert f"{run.frame['suspect'].sum()} of {timed} times are suspect" in core[0]
    assert len(core[0].encode()) < 1.5e6


def test_measured_over_predicted_is_what_it_says(core: tuple[str, dict[str, Any]]) -> None:
    cases = core[1]["cases"]
    assert not any(cases["calibrating"])
    known = [at for at, value in enumerate(cases["predicted_s"]) if value]
    assert len(known) > 500
    for at in known:
        assert cases["ratio"][at] == pytest.approx(cases["median_s"][at] / cases["predicted_s"][at], rel=2e-3)


def test_a_run_without_a_time_has_a_page_that_begins_with_it(tmp_path: Path) -> None:
    rows = [dataclasses.replace(one, **NO_TIME, reason="somebody else had the machine") for one in small()]
    done = invoke("report", written(tmp_path / "run.parquet", rows, {}), "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert '<p class="lead">Not fit for use: no case has a time (10 skipped).' in page
    assert "somebody else had the machine" in section(page, "cases") and 'id="experiments"' not in page


def test_a_case_whose_product_calibrates_is_marked(tmp_path: Path) -> None:
    shape = Gemm(m=4096, n=512, k=512, dtype="float16")
    facts = dict(zip(("product_m", "product_n", "product_k"), shape.product, strict=True))
    shapes = [row(H100, "ceilings/shapes", shape, "cublas", **facts, role="calibration")]
    shapes.append(row(H100, "gemm/other", shape, "triton", **facts))
    cases = content(page_of(written(tmp_path / "x.parquet", [*few(), *shapes]), (every_case.section,)))[
        "cases"
    ]
    marked = [name for name, at in zip(cases["name"], cases["calibrating"], strict=True) if at]
    assert marked == ["gemm/other-triton-float16-NN-m4096-n512-k512-cold"]


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
    there = {one.sweep for one in read(CORE)[0].rows}
    judged = [each for each in verdicts([CORE], kernels.problem, print, print) if each.declared.name in there]
    rules = section(core[0], "rules")
    assert words_of(rules) == Counter(each.verdict for each in judged)
    decided, undecided = rules.split("remain undecided", 1)
    assert ">UNDECIDED<" not in decided and ">SUPPORTED<" not in undecided
    assert ">CONTRADICTED<" in decided and ">CONTRADICTED<" not in undecided


def test_what_was_not_measured_stands_there_with_its_reason(tmp_path: Path) -> None:
    part = section(page_of(written(tmp_path / "run.parquet", few()), (every_case.section,)), "cases")
    assert "skipped" in part and "it needs" in part and "gemm/some" in part
    complete = [one for one in few() if one.is_timed]
    assert "Every case that was asked for has a time." in page_of(
        written(tmp_path / "whole.parquet", complete), (every_case.section,)
    )


def test_words_from_a_file_are_no_markup(tmp_path: Path) -> None:
    title = "</script><script>alert(1)</script>"
    sweeps = {"gemm/some": {"title": title, "plot": [{"x": "n"}]}}
    text = page_of(written(tmp_path / "run.parquet", few(), sweeps), (experiments.section,))
    assert title not in text and "&lt;/script&gt;" in text


def test_two_devices_stand_side_by_side_and_their_differences_are_marked(tmp_path: Path) -> None:
    for machine in (H100, H200):
        written(tmp_path / f"{machine.facts['device']}.parquet", few(machine))
    text = page_of(tmp_path, (the_machine.section, devices.section, every_case.section))
    assert "NVIDIA H100 80GB HBM3" in text and "NVIDIA H200" in text
    facts = {line.split("</th>")[0]: line for line in table(text, "Facts of the runs").split('scope="row">')}
    assert facts["device"].count("differs") == 1 and ">same<" in facts["driver"]
    known = content(text)
    assert set(column(known["cases"], "device")) == {"h100-sxm", "nvidia-h200"}
    assert 'data-column="device"' in text


def test_of_too_many_cases_some_are_drawn_each_as_it_would_stand_among_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"NVIDIA H200,gemm,cublas,float16,{m},512,512,TN,{m}e-7" for m in range(64, 564)]
    for path in (written(tmp_path / "run.parquet", list(many(500))), imported(tmp_path, "times", lines)):
        every = every_one(content(page_of(path, (every_case.section,)))["cases"])
        with monkeypatch.context() as patch:
            patch.setattr(every_case, "MOST_ROWS", 100)
            text = page_of(path, (every_case.section,))
        some = every_one(content(text)["cases"])
        assert "100 of 500 timed cases, drawn by chance; <code>python -m bench table" in text
        assert len(some) == 100 and some.items() <= every.items()
        places = sorted(map([*every].index, some))
        assert places[0] < 50 and places[-1] > 450  # not the first or the last of them


def every_one(cases: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Name of each case of a page -> its numbers and words."""
    columns = [column(cases, name) for name in cases if name != "name"]
    return dict(zip(cases["name"], zip(*columns, strict=True), strict=True))


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
    text = page_of(path, (claims.section, every_case.section))
    assert "Imported rows have no intervals" in text and 'data-column="bound_by"' not in text
    known = content(text)["cases"]
    of_name = zip(known["name"], known["median_s"], known["low_s"], known["high_s"], strict=True)
    assert sorted(ends for _, *ends in of_name) == [[1e-5, None, None], [2e-5, 1.9e-5, 2.2e-5]]
    lines = CliRunner().invoke(bench_app, ["table", str(path)]).output.splitlines()
    assert [line.split()[3:5] for line in lines if "-cublas-" in line] == [["unknown", "1"], ["±7.5", "%"]]


def test_the_command_writes_one_file_and_says_where_or_why_not(tmp_path: Path) -> None:
    without_ceilings = [one for one in few() if one.role == "measurement"]
    file = written(tmp_path / "run.parquet", without_ceilings, {"gemm/some": {"title": "Without a figure"}})
    for given, is_written in (("new/v1.5.html", "new/v1.5.html"), (".", "report.html")):
        done = invoke("report", file, "-o", tmp_path / given)
        assert done.exit_code == 0 and done.output.startswith(f"{tmp_path / is_written} ("), done.output
        assert (tmp_path / is_written).is_file()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["v1.5.html"]
    text = (tmp_path / "new" / "v1.5.html").read_text()
    # Nothing is fetched: no address is in an attribute that a browser follows by itself.
    assert 'src="' not in text and "<link" not in text and "@import" not in text
    (tmp_path / "taken").write_text("")
    done = invoke("report", file, "-o", tmp_path / "taken" / "page.html")
    assert done.exit_code == 2 and "cannot be written" in done.stderr and "Traceback" not in done.output


@pytest.mark.deep
def test_ten_thousand_cases_make_at_most_3_megabytes(tmp_path: Path) -> None:
    text = page_of(written(tmp_path / "run.parquet", list(many(10_000)), {}), (every_case.section,))
    assert len(content(text)["cases"]["name"]) == 10_000
    assert len(text.encode()) < 3e6


def test_runs_of_one_device_are_told_apart_in_heads_filters_cases_and_tables(tmp_path: Path) -> None:
    for dtype in ("float16", "float32"):
        both = [*products("cublas", (dtype,)), *products("triton", (dtype,))]
        imported(tmp_path, dtype, both)
    text = page_of(tmp_path)
    names = {run.name for run in read(tmp_path)}
    assert len(names) == 2 and set(column(content(text)["cases"], "device")) == names
    filters = text.split('data-column="device"')[1].split("</select>")[0]
    for name in names:
        assert f"<strong>{name}</strong>" in text and f'value="{name}"' in filters


def test_only_a_device_that_was_asked_for_is_compared_with_though_others_share_more_cases(
    tmp_path: Path,
) -> None:
    """Of A, B and C, in this order, A and B share a case, and B and C."""
    wanted = {"a": (H100, 512), "b": (H200, 512), "c": (H100, 2048)}
    shared = [one for one in few(H200) if '"n":2048' in one.parameters]
    for name, (machine, n) in wanted.items():
        rows = [one for one in few(machine) if f'"n":{n},' in one.parameters]
        rows += shared if name == "b" else []
        named = [dataclasses.replace(one, device=name, device_id=name) for one in rows]
        for folder in ("all", "a" if name == "a" else "others"):
            written(tmp_path / folder / name / "run.parquet", named)
    written(
        tmp_path / "more" / "d" / "run.parquet", [dataclasses.replace(one, device="d") for one in few(CPU)]
    )
    to = ("-o", tmp_path / "all.html")
    assert "in the time of h200," in words(
        invoke("report", tmp_path / "all", tmp_path / "more", *to), tmp_path
    )
    assert "in the time of h100_sxm5," in words(
        invoke("report", tmp_path / "a" / "a", tmp_path / "others", *to), tmp_path
    )


def test_a_device_whose_only_file_is_damaged_is_left_out_of_the_page(tmp_path: Path) -> None:
    """A file as older versions wrote it, without a seal: only who reads its other columns finds it out."""
    paths = [
        written(tmp_path / f"{machine.facts['device']}.parquet", few(machine)) for machine in (H100, H200)
    ]
    older = pq.read_table(paths[1])
    pq.write_table(older, paths[1], compression="none", write_page_checksum=True, use_dictionary=False)
    chunk = pq.read_metadata(paths[1]).row_group(0).column(older.column_names.index("flop"))
    data = bytearray(paths[1].read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    paths[1].write_bytes(data)
    page = tmp_path / "all.html"
    done = invoke("report", tmp_path, "-o", page)
    assert done.exit_code == 0 and f"{paths[1]}: not a whole parquet file" in " ".join(done.output.split())
    assert "H100" in page.read_text("utf-8") and "H200" not in page.read_text("utf-8")
    page.unlink()
    done = invoke("report", paths[1], "-o", page)
    assert done.exit_code == 2 and "not a whole parquet file" in done.output and not page.exists()


def test_several_devices_begin_with_their_speed_ups(tmp_path: Path) -> None:
    for machine in (H100, H200):
        written(tmp_path / f"{machine.facts['device']}.parquet", few(machine))
    text = page_of(tmp_path)
    assert text.index('id="devices"') < text.index('id="machine"')
    bought, gained = table(text, "What to buy"), section(text, "devices").split("Other classes of work")[0]
    for title in ("Memory-bound work", "Compute-bound work", "Launch-bound work"):
        medians = re.findall(r"<strong>([\d.]+)</strong>", table(text, title))
        (line,) = [line for line in bought.split("<tr>") if ">h200<" in line]
        column = re.findall(r"<button[^>]*>([^<]*)<", bought).index(title)
        shown = re.findall(r'class="whole">([\d.]+) times<', line.split("<td")[1 + column])
        assert [float(one) for one in shown] == [pytest.approx(np.median([*map(float, medians)]), abs=0.011)]
    of = load([tmp_path], find_datasheet)
    base = of[0].device
    sheets = {run.device: run.datasheet for run in of}
    wanted = gains(dict(speedups(pd.concat(map(compared, of)), base)), base, sheets)
    found = re.findall(r"<strong>([\d.]+)</strong>(?: <span[^>]*>of ([\d.]+)</span>)?", gained)
    cases_of = re.findall(r"middle 80 % of (\d+) case", gained)
    assert len(wanted) > 2
    assert sorted((*pair, n) for pair, n in zip(found, cases_of, strict=True)) == sorted(
        (f"{each.median:.2f}", f"{each.stated:.2f}" if each.stated else "", str(each.cases))
        for each in wanted
    )
    assert 'id="devices"' not in page_of(tmp_path / "h100-sxm.parquet", (devices.section,))


def test_what_a_datasheet_alone_promises_is_no_number_of_a_device(tmp_path: Path) -> None:
    cards = (
        page_of(PUBLIC / "nvidia-h200", (the_machine.section,)).split('class="numbers"')[1].split("</dl>")[0]
    )
    memory, products = cards.split("</div>")[:2]
    assert "not measured; its datasheet promises 4.8 TB/s" in memory and 'class="value"' not in memory
    assert 'class="value">897.4 TFLOP/s<' in products and "its datasheet promises 989.5 TFLOP/s" in products
    assert "of the roof" not in cards, "which would be the fastest of the same rows"


def test_a_convolution_is_no_matrix_product_however_fast(tmp_path: Path) -> None:
    """Winograd's algorithm, say, takes less arithmetic than is counted."""
    head = "device,operator,implementation,dtype,layout,m,n,k,"
    head += "c,h,w,window_h,window_w,padding,direction,seconds"
    lines = [
        "NVIDIA H200,gemm,cublas,float16,TN,4096,4096,4096,,,,,,,,2.75e-4",
        "NVIDIA H200,convolution,cudnn,float16,NHWC,,32,256,256,56,56,3,3,1,forward,1.32e-4",
    ]
    text = page_of(imported(tmp_path, "both", lines, head), (the_machine.section,))
    assert 'class="value">499.8 TFLOP/s<' in text and "897" not in text


def test_a_run_has_its_roofline_its_figures_and_its_acceptance(tmp_path: Path) -> None:
    """Each figure is an SVG with its title as text, and drawn as `plots draw` draws it."""
    copy = row(CPU, "fleet/memory", Stream(kind="copy", length=2**26, dtype="float32"), "aten")
    text = page_of(written(tmp_path / "run.parquet", [*small(), copy]))
    found = {says: gzip.decompress(base64.b64decode(svg)).decode() for says, svg in DRAWING.findall(text)}
    assert [says for says in found if says.startswith("Roofline of ")], list(found)
    (of_sweep,) = [svg for says, svg in found.items() if "gemm/some-duration" in says]
    assert "Some products (gemm/some): duration" in of_sweep
    assert not re.search(r' id="(axes|patch|line2d)_', of_sweep)
    verdict = CliRunner().invoke(bench_app, ["accept", str(tmp_path / "run.parquet")]).output.split(": ")
    assert f">{verdict[1]}</span>" in section(text, "accept")


def test_a_site_is_an_index_over_reports_and_deletes_nothing_else(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{one.facts['device']}.parquet", few(one)) for one in (H100, H200)]
    site = tmp_path / "site"
    done = invoke("site", *files, "-o", site)
    assert done.exit_code == 0, done.output
    index = (site / "index.html").read_text()
    links = re.findall(r'href="([^"#]+)"', index)
    assert set(links) == {"h100-sxm.html", "nvidia-h200.html"}
    assert all((site / link).is_file() for link in links) and "3 pages" in done.output
    words = words_of(section((site / "h100-sxm.html").read_text(), "rules"))
    assert words and 'id="devices"' in index
    assert invoke("site", files[0], "-o", site).exit_code == 0
    assert not (site / "nvidia-h200.html").exists()
    done = invoke("site", *files, "-o", tmp_path)
    assert done.exit_code == 2 and "no site of ours" in done.stderr and files[0].is_file()
    done = invoke("site", tmp_path / "mistyped.parquet", "-o", site)
    assert done.exit_code == 2 and "no such file" in done.stderr and (site / "index.html").is_file()
