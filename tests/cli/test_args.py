"""Flags, environment and which of them wins."""

from __future__ import annotations

import pytest

from pydspark.cli.args import parse
from pydspark.cli.flags import COMMANDS, UNSUPPORTED
from pydspark.errors import ArgumentError
from pydspark.params import ModelParams, SamplingParams, options


def values(*argv: str, **env: str) -> dict[str, object]:
    return dict(parse(["run", *argv], env).values)


def test_a_value_comes_from_any_spelling_of_its_flag() -> None:
    assert values("-c", "64") == values("--ctx-size", "64") == values("--ctx-size=64") == {"n_ctx": 64}


def test_every_parameter_with_a_flag_can_be_set() -> None:
    texts = {int: "2", float: "0.5", object: "f16"}
    for cls in (ModelParams, SamplingParams):
        for name, option in options(cls).items():
            for spelling in option.flags:
                text = next(iter(option.choices), texts.get(option.kind))
                assert name in values(spelling, *([] if option.kind is bool else [str(text)]))


def test_spellings_mean_one_thing_within_a_command() -> None:
    for command in COMMANDS.values():
        spellings = [name for flag in command.flags for name in (*flag.names, *flag.negatives)]
        assert len(spellings) == len(set(spellings))
        assert not set(spellings) & set(UNSUPPORTED)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("-p", "- a list"), {"prompt": "- a list"}),
        (("-p", "-5"), {"prompt": "-5"}),
        (("--prompt=--demo",), {"prompt": "--demo"}),
        (("-n", "-1"), {"max_tokens": -1}),
        (("-n", "none"), {"max_tokens": None}),
        (("-ngl", "all"), {"n_gpu_layers": -1}),
        (("-ngl", "auto"), {"n_gpu_layers": -1}),
        (("-fa",), {"flash_attn": True}),
        (("-fa", "on"), {"flash_attn": True}),
        (("-fa", "off"), {"flash_attn": False}),
        (("-fa", "auto"), {}),
        (("--no-mmap",), {"use_mmap": False}),
        (("-ctk", "q8_0"), {"type_k": 8}),
        (("-ctk", "none"), {"type_k": None}),
        (("--top-p", "2"), {"top_p": 1.0}),
        (("-r", "a", "--stop", "b"), {"stop": ("a", "b")}),
        (("-c", "1", "-c", "2"), {"n_ctx": 2}),
    ],
)
def test_values_are_read_as_meant(argv: tuple[str, ...], expected: dict[str, object]) -> None:
    assert values(*argv) == expected


def test_what_is_no_flag_is_positional() -> None:
    assert parse(["run", "hello", "-c", "1", "-"], {}).positionals == ("hello", "-")
    assert parse(["run", "--", "-c", "--"], {}).positionals == ("-c", "--")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["run", "info"]),
        (["rnu"], ["rnu", "run"]),
        (["run", "--tmp", "1"], ["--tmp", "--temp"]),
        (["run", "-ngll", "1"], ["-ngll", "-ngl"]),
        (["run", "--ctx", "1"], ["--ctx", "--ctx-size"]),
        (["run", "-\U0001f600"], ["unknown flag", "--"]),
        (["run", "-c"], ["-c", "needs a value"]),
        (["run", "-p", "--demo"], ["-p", "--prompt=--demo"]),
        (["run", "-c", "many"], ["-c", "whole number", "many"]),
        (["run", "-c", "-2"], ["-c", "-2", "0"]),
        (["run", "--temp", "nan"], ["--temp", "finite"]),
        (["run", "-ctk", "q3"], ["-ctk", "q8_0", "q3"]),
        (["run", "--demo=perhaps"], ["--demo", "on or off", "perhaps"]),
        (["run", "--log-colors", "red"], ["--log-colors", "auto", "red"]),
        (["run", "--spec-draft-sampling", "maybe"], ["--spec-draft-sampling", "greedy", "maybe"]),
        (["run", "-ngld", "3"], ["-ngld", "not supported", "where the model is"]),
        (["run", "-no-cnv"], ["-no-cnv", "--raw"]),
        (["info", "--temp", "1"], ["--temp"]),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_be_right(argv: list[str], words: list[str]) -> None:
    with pytest.raises(ArgumentError) as error:
        parse(argv, {})
    for word in words:
        assert word in str(error.value)
    assert error.value.exit_code == 2


def test_arguments_come_before_the_environment() -> None:
    assert values("-c", "1", LLAMA_ARG_CTX_SIZE="2") == {"n_ctx": 1}
    assert values(LLAMA_ARG_CTX_SIZE="2") == {"n_ctx": 2}


def test_our_names_in_the_environment_come_before_those_of_llama_cpp() -> None:
    assert values(LLAMA_ARG_CTX_SIZE="2", DSPARK_ARG_CTX_SIZE="3") == {"n_ctx": 3}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LLAMA_ARG_MMAP": "0"}, {"use_mmap": False}),
        ({"LLAMA_ARG_MMAP": "Enabled"}, {"use_mmap": True}),
        ({"LLAMA_ARG_NO_MMAP": "anything"}, {"use_mmap": False}),
        ({"LLAMA_ARG_MMAP": "1", "LLAMA_ARG_NO_MMAP": "1"}, {"use_mmap": False}),
        ({"LLAMA_ARG_FLASH_ATTN": "auto"}, {}),
        ({"LLAMA_ARG_FLASH_ATTN": "on"}, {"flash_attn": True}),
        ({"LLAMA_ARG_CTX_SIZE": ""}, {}),
        ({"DSPARK_DEBUG": "1"}, {"debug": True}),
    ],
)
def test_switches_in_the_environment(env: dict[str, str], expected: dict[str, object]) -> None:
    assert values(**env) == expected


@pytest.mark.parametrize("env", [{"LLAMA_ARG_CTX_SIZE": "big"}, {"DSPARK_ARG_MMAP": "maybe"}])
def test_a_wrong_value_in_the_environment_is_named(env: dict[str, str]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(env))} in the environment"):
        values(**env)


def test_only_the_command_line_counts_as_given() -> None:
    arguments = parse(["run", "-c", "1"], {"LLAMA_ARG_THREADS": "2"})
    assert arguments.given == {"n_ctx"}
    assert arguments.of(ModelParams) == {"n_ctx": 1, "n_threads": 2}
