"""Arguments, messages, exit codes and manners of ``dspark-convert``."""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydspark.convert import cli, hf_cache
from pydspark.convert.progress import Progress
from tiny.drafters import make_drafter, save_drafter

DOCS = Path(__file__).parents[2] / "docs" / "convert.md"


@pytest.fixture
def folder(tmp_path):
    return save_drafter(tmp_path / "checkpoint", make_drafter())


def test_default_name_and_last_line(command, folder, target, tmp_path):
    result = command(folder, "--target", target)
    assert result.code == 0 and result.out == "dspark-target-BF16.gguf\n"
    assert (tmp_path / "dspark-target-BF16.gguf").exists()


def test_type_placeholder_in_the_name(command, folder, target, tmp_path):
    assert command(folder, "--target", target, "--outtype", "q8_0", "--outfile", "x-{ftype}.gguf").code == 0
    assert (tmp_path / "x-Q8_0.gguf").exists()


def test_name_of_the_model(command, folder, target):
    result = command(folder, "--target-model-dir", target, "--dry-run", "--model-name", "My drafter")
    assert "general.name = My drafter" in result.out


def test_dry_run_prints_the_plan_and_writes_nothing(command, folder, target, tmp_path):
    before = sorted(tmp_path.iterdir())
    result = command(folder, "--target", target, "--dry-run", "--outtype", "q8_0")
    assert result.code == 0 and sorted(tmp_path.iterdir()) == before
    assert re.search(
        r"blk\.0\.attn_q\.weight +layers\.0\.self_attn\.q_proj\.weight +64 x 64 +BF16 -> Q8_0 +4,352", result.out
    )
    assert "dflash.target_layers = [2, 4, 5]" in result.out
    assert "target layers [1, 3, 4] of 6" in result.out


def test_dry_run_as_json(command, folder, target):
    plan = json.loads(command(folder, "--target", target, "--dry-run", "--json").out)
    assert len(plan["tensors"]) == len(make_drafter().weights)
    assert plan["metadata"]["dflash.block_size"] == 4
    assert {"name", "source", "shape", "source_type", "type", "bytes"} == plan["tensors"][0].keys()


def test_dry_run_refuses_what_a_run_refuses(command, tmp_path, target):
    drafter = make_drafter()
    del drafter.weights["fc.weight"]
    result = command(save_drafter(tmp_path / "bad", drafter), "--target", target, "--dry-run")
    assert result.code == 1 and result.out == "" and "fc.weight: missing" in result.err


def test_quiet_and_verbose(command, folder, target):
    assert command(folder, "--target", target, "-q").err == ""
    assert "markov_w1.weight" in command(folder, "--target", target, "-v", "--force").err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no drafter folder given"),
        (["x"], "--target is missing"),
        (["x", "--target"], "expected one argument"),
        (["x", "--target", "t", "--outtype", "q5_1"], "invalid choice: 'q5_1'"),
        (["x", "--target", "t", "--layout", "both"], "invalid choice: 'both'"),
        (["x", "--target", "t", "--outfle", "a"], "unknown argument --outfle: did you mean --outfile?"),
        (["x", "--target", "t", "--zzz=1"], "unknown argument --zzz: see --help"),
        (["x", "--target", "t", "--dspark"], "--dspark: not needed"),
        (["x", "--target", "t", "--remote"], "--remote: not supported; download"),
        (["x", "--target", "t", "--vocab-only"], "--vocab-only: not supported"),
        (["x", "--target", "t", "--split-max-size", "2G"], "written as one file"),
    ],
)
def test_usage_errors(command, arguments, reason):
    result = command(*arguments)
    assert result.code == 2 and reason in result.err and result.out == ""


def test_help_shows_every_group_and_an_example(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "dspark-convert DRAFTER_FOLDER --target model.gguf" in text and "default: bf16" in text


def test_expected_errors_show_a_traceback_only_when_asked(command, target, monkeypatch):
    assert "Traceback" not in command("nowhere", "--target", target).err
    assert "Traceback" in command("nowhere", "--target", target, "--debug").err
    monkeypatch.setenv("DSPARK_DEBUG", "1")
    assert "Traceback" in command("nowhere", "--target", target).err


def test_defects_of_the_program_have_their_own_status(command, folder, target, monkeypatch):
    monkeypatch.setattr(cli, "prepare", lambda *arguments: 1 / 0)
    result = command(folder, "--target", target)
    assert result.code == 70 and "internal error: ZeroDivisionError" in result.err and "report" in result.err


def test_interrupt_has_its_own_status(command, folder, target, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "prepare", interrupt)
    assert command(folder, "--target", target).code == 130


def test_reader_that_goes_away_is_no_error_message(folder, target, tmp_path):
    arguments = [sys.executable, "-m", "pydspark.convert.cli", folder, "--target", target, "--dry-run"]
    process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert errors == b""


def test_command_starts_without_the_compiled_core(folder, target, tmp_path):
    code = (
        "import sys; sys.modules['pydspark._native'] = None; sys.modules['torch'] = None\n"
        "from pydspark.convert.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", code, folder, "--target", target, "--dry-run"]
    assert subprocess.run(arguments, cwd=tmp_path, capture_output=True).returncode == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr("pydspark.convert.progress._BAR_SECONDS", 0.0)
    stream = Terminal()
    progress = Progress("writing", 100, stream=stream)
    progress.add(50)
    progress.close()
    assert "[###############...............]" in stream.getvalue()
    assert "50.0%" in stream.getvalue() and stream.getvalue().endswith("\n")


def test_progress_is_plain_lines_elsewhere(monkeypatch):
    stream = io.StringIO()
    progress = Progress("writing", 100, stream=stream)
    progress.add(10)
    assert stream.getvalue() == ""
    monkeypatch.setattr("pydspark.convert.progress._LINE_SECONDS", 0.0)
    progress.add(40)
    progress.close()
    assert "\r" not in stream.getvalue() and stream.getvalue().startswith("writing    50.0%")


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_can_be_turned_off(monkeypatch, quiet):
    if not quiet:
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    stream = Terminal()
    progress = Progress("writing", 100, quiet=quiet, stream=stream)
    progress.add(100)
    progress.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("variable", ["LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"])
def test_repository_in_the_cache(command, target, tmp_path, monkeypatch, variable):
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "cache"))
    repo = hf_cache.cache_folder() / "models--someone--drafter"
    save_drafter(repo / "snapshots" / "abc", make_drafter())
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc\n")
    assert command("someone/drafter", "--target", target, "--dry-run").code == 0
    result = command("someone/other", "--target", target, "--dry-run")
    assert result.code == 1 and "run 'hf download someone/other' first" in result.err


def test_documented_flags_are_those_of_the_parser():
    actions = [action for action in cli.build_parser()._actions if not isinstance(action, argparse._HelpAction)]
    parsed = {", ".join(action.option_strings) or action.dest for action in actions}
    rows = re.findall(r"^\| `([^`]+)` \|", DOCS.read_text(encoding="utf-8").split("## Flags")[1].split("##")[0], re.M)
    assert set(rows) == parsed and len(rows) == len(parsed)


def test_documented_exit_codes_are_those_of_the_command():
    section = DOCS.read_text(encoding="utf-8").split("## Exit status")[1].split("##")[0]
    codes = {value for name, value in vars(cli).items() if name.startswith("EXIT_")}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)} == codes
