"""``--shortlist``: which tokens a drafter's drafts are made of."""

from __future__ import annotations

from typing import Any

import gguf
import pytest
from tiny.drafters import N_VOCAB, make_drafter, save_drafter

KEY = "dspark.shortlist"


def stored(path: Any) -> list[int] | None:
    field = gguf.GGUFReader(path).fields.get(KEY)
    return None if field is None else field.contents()


def test_without_the_flag_there_is_none(convert):
    assert stored(convert(make_drafter())) is None


@pytest.mark.parametrize("n", [1, 100, N_VOCAB])
def test_a_number_takes_the_lowest_ids(convert, n):
    assert stored(convert(make_drafter(), "--shortlist", str(n))) == list(range(n))


FILES = {
    "ids": ("7\n200\n5\n", [7, 200, 5]),
    "ids with counts": ("7 10\n200 300\n5 10\n\n9 4000", [9, 200, 7, 5]),
    "comments": ("# id count\n7 1  # the\n\n   \n12\t2\n", [12, 7]),
    "one id": ("0", [0]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_ids_by_their_counts(convert, tmp_path, name):
    text, wanted = FILES[name]
    (tmp_path / "ids.txt").write_text(text)
    assert stored(convert(make_drafter(), "--shortlist", str(tmp_path / "ids.txt"))) == wanted


def test_the_check_tells_of_it(convert, command, target):
    result = command("--check", convert(make_drafter(), "--shortlist", "100"), "--target", target)
    assert result.code == 0
    assert f"short list: 100 of {N_VOCAB} tokens" in result.out


WRONG_FILES = {
    "no number": ("7\nthe\n", 2, "line 2 is 'the'"),
    "negative": ("-7\n", 2, "line 1 is '-7'"),
    "three columns": ("7 8 9\n", 2, "line 1 is '7 8 9'"),
    "empty": ("\n# nothing\n", 1, "no ids"),
    "too high": (f"7\n{N_VOCAB}\n99999999999999999999\n", 1, f"2 ids outside of the vocabulary, first {N_VOCAB}"),
    "repeated": ("7\n8\n7\n", 1, "1 ids appear more than once"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_refused(command, target, tmp_path, name):
    text, code, message = WRONG_FILES[name]
    (tmp_path / "ids.txt").write_text(text)
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    result = command(folder, "--target", target, "--outfile", "out.gguf", "--shortlist", "ids.txt")
    assert result.code == code
    assert message in result.err
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("given", ["0", str(N_VOCAB + 1), "missing.txt", "."])
def test_what_is_neither_a_number_nor_a_file_is_refused(command, target, tmp_path, given):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    result = command(folder, "--target", target, "--shortlist", given)
    assert result.code == 2
    assert f"--shortlist {given}: " in result.err


def test_a_binary_file_is_refused(command, target, tmp_path):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    result = command(folder, "--target", target, "--shortlist", target)
    assert result.code == 2 and "cannot be read" in result.err


def test_a_reduced_vocabulary_is_refused(refused):
    assert "reduced vocabulary of 64 tokens already" in refused(make_drafter(reduced=64), "--shortlist", "20")


@pytest.mark.parametrize(("ids", "message"), [([5, 5], "appear more than once"), ([N_VOCAB], "outside")])
def test_the_check_finds_a_wrong_list(convert, command, target, tmp_path, ids, message):
    path = convert(make_drafter(), "--shortlist", str(len(ids)))
    data = path.read_bytes()
    value = b"".join(token.to_bytes(4, "little") for token in range(len(ids)))
    at = data.index(KEY.encode()) + len(KEY) + 4 + 4 + 8
    assert data[at : at + len(value)] == value
    wrong = b"".join(token.to_bytes(4, "little") for token in ids)
    path.write_bytes(data[:at] + wrong + data[at + len(value) :])
    result = command("--check", path, "--target", target)
    assert result.code == 1
    assert KEY in result.err and message in result.err
