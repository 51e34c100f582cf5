"""Numbers and texts of a benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pydspark.bench.machine import cpu_name, loaded_from
from pydspark.bench.main import main
from pydspark.bench.measure import Case, Kind, Sample
from pydspark.bench.report import row_json, table
from pydspark.bench.summary import compare, summarize

DECODE = Case(Kind.GREEDY, 10, 0)


def test_summary_of_known_samples() -> None:
    row = summarize(DECODE, [Sample(100.0, 90.0, 1.0), Sample(200.0, 80.0, 4.0), Sample(400.0, 95.0, 4.0)])
    assert (row.best_ms, row.best_ts, row.best_cpu_ms) == (100.0, 100.0, 80.0)
    assert row.mean_ms == pytest.approx(700 / 3)
    assert row.stddev_ms == pytest.approx(152.7525)
    assert row.mean_ts == pytest.approx((100 + 50 + 25) / 3)
    assert row.host_ms == pytest.approx(0.4)
    assert row.host_share == pytest.approx(0.01)


def test_one_sample_has_no_spread_and_a_prompt_no_host_time() -> None:
    row = summarize(Case(Kind.PROMPT, 8, 0), [Sample(2.0, 2.0)])
    assert (row.stddev_ms, row.stddev_ts, row.host_ms, row.host_share) == (0.0, 0.0, None, None)
    assert "| pp8 | 4000.0 \u00b1 0.0 |" in table([row])


def test_ratio_above_one_means_ours_is_faster() -> None:
    ours = [Sample(10.0, 10.0), Sample(20.0, 20.0), Sample(30.0, 30.0)]
    theirs = [Sample(15.0, 20.0), Sample(18.0, 30.0), Sample(90.0, 60.0)]
    ratio = compare(DECODE, ours, theirs)
    assert (ratio.best, ratio.best_cpu, ratio.median_cpu) == (1.5, 2.0, 2.0)


def test_json_of_a_row_has_nanoseconds_and_the_names_of_llama_bench() -> None:
    found = row_json(summarize(DECODE, [Sample(100.0, 90.0, 1.0)]))
    assert (found["avg_ns"], found["n_gen"], found["n_prompt"], found["avg_ts"]) == (100_000_000, 10, 0, 100.0)


def test_cpu_is_named_with_its_vectors(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx avx2 avx512f\n")
    assert cpu_name(cpuinfo) == "Some CPU AVX2 AVX512F"
    assert cpu_name(tmp_path / "missing")


def test_folder_of_a_loaded_library(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 42   /opt/x y/libggml-base.so.0.20.2\n7f02-7f03 rw-p 0 00:00 0\n")
    assert loaded_from("libggml-base", maps) == "/opt/x y"
    assert loaded_from("libother", maps) is None


SHORT = ["-p", "8", "-n", "2", "-w", "1,3", "-r", "2", "-t", "1"]


def test_last_line_is_json_and_a_table_comes_before(tiny_llama_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", str(tiny_llama_path), *SHORT]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    assert [row["test"] for row in result["results"]] == ["pp8", "tg2", "sampled2", "batch1", "batch3"]
    assert result["repetitions"] == 2
    assert any(line.startswith("| batch3 |") for line in lines)
    assert any(line.startswith("settings: n_threads 1") for line in lines)


def test_json_output_is_one_line(tiny_llama_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", str(tiny_llama_path), *SHORT, "-o", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["model_filename"] == tiny_llama_path.name


def test_builds_are_compared_in_turns(tiny_llama_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = loaded_from("libggml-base")
    assert folder is not None
    assert main(["-m", str(tiny_llama_path), *SHORT, "--against", folder]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ours"]["ggml_loaded_from"] == result["theirs"]["ggml_loaded_from"] == folder
    assert all(ratio["best_cpu"] > 0 for ratio in result["ratios"])
    assert len(result["ratios"]) == 5


def test_missing_model_is_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", str(tmp_path / "none.gguf")]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("pydspark bench: ") and found.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["-m", "x", "-p", "-1"], ["-m", "x", "-d", "1,x"], ["-m", "x", "--demo"], []])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err
