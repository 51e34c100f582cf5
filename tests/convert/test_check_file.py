"""``--check``: an existing drafter file against a target."""

from __future__ import annotations

import re
import struct

import gguf
import numpy as np
import pytest
from pydspark.convert.gguf_reader import read_gguf
from tiny.drafters import make_drafter, save_drafter, vocabulary, write_target


@pytest.fixture
def rewrite(tmp_path):
    """Copies a drafter file with changed metadata or tensors, as another program might have written it."""

    def run(path, drop=(), metadata=None, tensors=None):
        file = read_gguf(path)
        out = tmp_path / "rewritten.gguf"
        writer = gguf.GGUFWriter(out, "dflash")
        values = {key: (v.value, v.type, v.item_type) for key, v in file.metadata.items() if key not in drop}
        for key, value in {**values, **(metadata or {})}.items():
            if key != "general.architecture":
                writer.add_key_value(key, *value)
        arrays = {name: t.all_values() for name, t in file.tensors.items() if name not in drop}
        for name, array in {**arrays, **(tensors or {})}.items():
            writer.add_tensor(name, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return out

    return run


U32, F32, BOOL = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.BOOL


@pytest.mark.parametrize("outtype", ["bf16", "q8_0", "mixed", "q4_0"])
def test_our_files_pass(convert, command, target, outtype):
    result = command("--check", convert(make_drafter(), "--outtype", outtype), "--target", target)
    assert result.code == 0
    assert "fingerprint: agrees" in result.out and result.out.endswith("\nok\n")


def test_our_reduced_files_pass(convert, command, target):
    result = command("--check", convert(make_drafter(reduced=64)), "--target", target)
    assert result.code == 0 and "head: own" in result.out


def test_quantized_twin_of_the_target_passes(convert, command, tmp_path):
    twin = write_target(tmp_path / "twin.gguf", gguf.GGMLQuantizationType.Q4_0)
    assert command("--check", convert(make_drafter()), "--target", twin).code == 0


def test_file_of_another_program_passes_without_fingerprint(convert, command, target, rewrite):
    path = convert(make_drafter())
    ours = [key for key in read_gguf(path).metadata if key.startswith("dspark.")]
    result = command("--check", rewrite(path, drop=ours), "--target", target)
    assert result.code == 0 and "fingerprint: none in the file" in result.out


def test_dflash_file_without_a_layout_has_the_one_that_is_run(convert, command, target, rewrite):
    path = convert(make_drafter())
    heads = ["markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"]
    dropped = ["dflash.sample_from_anchor", "dspark.fingerprint.version"]
    for drop, wanted in (dropped, "dspark drafter .*anchor-first"), (dropped + heads, r"dflash drafter .*1\+n"):
        result = command("--check", rewrite(path, drop=drop), "--target", target)
        assert result.code == 0 and re.search(wanted, result.out)


def test_embedding_without_head_is_pointed_out(convert, command, target, rewrite):
    path = convert(make_drafter(with_copies=True), "--share", "keep")
    result = command("--check", rewrite(path, drop=["output.weight", "dspark.fingerprint.version"]), "--target", target)
    assert result.code == 0 and "warning: embedding without head" in result.out


def test_leaked_partial_rotation_is_pointed_out(convert, command, target, rewrite):
    leaked = rewrite(convert(make_drafter()), metadata={"dflash.rope.dimension_count": (4, U32)})
    result = command("--check", leaked, "--target", target)
    assert result.code == 0 and "dimension_count is 4, which leaked" in result.out


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"drop": ["dflash.block_size"]}, "dflash.block_size: missing"),
        ({"metadata": {"dflash.block_size": (10**9, U32)}}, "dflash.block_size: 1000000000"),
        ({"metadata": {"dflash.block_count": (4 * 10**9, U32)}}, "dflash.block_count: 4000000000"),
        ({"drop": ["dflash.target_layers"]}, "dflash.target_layers: missing"),
        ({"drop": ["tokenizer.ggml.mask_token_id"]}, "tokenizer.ggml.mask_token_id: missing"),
        ({"drop": ["fc.weight"]}, "fc.weight: missing"),
        ({"drop": ["markov_w2.weight"]}, "markov_w2.weight: missing"),
        ({"drop": ["markov_w1.weight"]}, "markov_w2.weight: unexpected tensor"),
        ({"metadata": {"dflash.attention.causal": (True, BOOL)}}, "dflash.attention.causal: True"),
        ({"metadata": {"dflash.embedding_scale": (8.0, F32)}}, "dflash.embedding_scale: 8.0"),
        ({"metadata": {"dflash.rope.freq_base": (10000, U32)}}, "dflash.rope.freq_base: 10000"),
        ({"tensors": {"d2t": np.arange(272)}}, "d2t: unexpected tensor"),
    ],
)
def test_defective_files_are_refused(convert, command, target, rewrite, changes, reason):
    result = command("--check", rewrite(convert(make_drafter()), **changes), "--target", target)
    assert result.code == 1 and reason in result.err


def test_changed_weights_do_not_match_the_fingerprint(convert, command, target, rewrite):
    path = convert(make_drafter())
    gate, up = (read_gguf(path).tensors[f"blk.0.ffn_{name}.weight"].all_values() for name in ("gate", "up"))
    swapped = rewrite(path, tensors={"blk.0.ffn_gate.weight": up, "blk.0.ffn_up.weight": gate})
    result = command("--check", swapped, "--target", target)
    assert result.code == 1 and "the tensors compute something else" in result.err


def test_other_target_is_refused_with_all_reasons(convert, command, tmp_path):
    texts = vocabulary()[0]
    texts[7], texts[8] = texts[8], texts[7]
    other = write_target(tmp_path / "other.gguf", texts=texts, n_layer=4)
    result = command("--check", convert(make_drafter()), "--target", other)
    assert result.code == 1
    assert "2 token texts differ, first id 7" in result.err
    assert "[3, 4] in [1, 3, 4]" in result.err
    assert "tokenizer_sha256" in result.err


def test_deeper_target_is_refused(convert, command, tmp_path):
    path = convert(make_drafter())
    deeper = write_target(tmp_path / "deeper.gguf", n_layer=8)
    result = command("--check", path, "--target", deeper)
    assert result.code == 1 and "wanted: 8, the layers of tiny target" in result.err
    predicting = write_target(tmp_path / "predicting.gguf", n_layer=8, extra={"qwen3.nextn_predict_layers": 2})
    assert command("--check", path, "--target", predicting).code == 0


def test_target_and_drafter_exchanged(convert, command, target):
    path = convert(make_drafter())
    assert "is a drafter" in command("--check", target, "--target", path).err
    result = command("--check", target, "--target", target)
    assert result.code == 1 and "general.architecture: 'qwen3'" in result.err


def test_unknown_number_format_is_named(convert, command, target):
    path = convert(make_drafter())
    data = path.read_bytes()
    at = data.index(b"fc.weight") + len("fc.weight") + 4 + 16
    path.write_bytes(data[:at] + struct.pack("<I", 99) + data[at + 4 :])
    result = command("--check", path, "--target", target)
    assert result.code == 1 and "fc.weight: number format 99 is not known" in result.err


def test_file_cut_short(convert, command, target):
    path = convert(make_drafter())
    path.write_bytes(path.read_bytes()[:-40])
    result = command("--check", path, "--target", target)
    assert result.code == 1 and "lacks its last" in result.err


def test_folder_beside_check_is_a_usage_error(command, target, tmp_path):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    assert command(folder, "--check", "a.gguf", "--target", target).code == 2
