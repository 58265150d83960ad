"""GGUF files that are whole, cut, or lie: values come out as written, and every bad file is one clean error."""

import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from local_engine.config import EngineConfig
from local_engine.errors import ModelLoadError
from local_engine.loading.gguf import GgufFile
from local_engine.loading.load import load_model

STRING, ARRAY, UINT32, FLOAT32 = 8, 9, 4, 6


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, payload: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + payload


def tensor(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def build(
    keys: list[bytes],
    tensors: list[bytes],
    *,
    data: bytes = b"",
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    num_tensors, num_keys = counts or (len(tensors), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


def opened(folder: Path, content: bytes) -> GgufFile:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return GgufFile(path)


def test_metadata_and_tensors_come_out_as_written(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    scalars: dict[str, Any] = {"a": 1, "b": -3, "c": 1.5, "d": True, "e": "grüße", "f": 2**40}
    writer.add_uint8("a", 1)
    writer.add_int16("b", -3)
    writer.add_float64("c", 1.5)
    writer.add_bool("d", True)
    writer.add_string("e", "grüße")
    writer.add_uint64("f", 2**40)
    writer.add_array("words", ["", "x", "日本"])
    writer.add_array("numbers", [1, 2, 3])
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer.add_tensor("t", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GgufFile(path) as file:
        assert file.version == 3
        assert {name: file.metadata[name] for name in scalars} == scalars
        assert file.metadata["words"] == ["", "x", "日本"]
        assert list(np.asarray(file.metadata["numbers"])) == [1, 2, 3]
        assert file.tensors["t"].shape == (2, 3)
        assert np.array_equal(file.read(file.tensors["t"]).view(np.float32), values)
        assert np.array_equal(file.read(file.tensors["t"], 1, 2).view(np.float32), values[1:])


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    raw = b"\xff\xfe"
    with opened(tmp_path, build([key("k", ARRAY, struct.pack("<IQ", STRING, 1) + text(raw))], [])) as file:
        values = file.metadata["k"]
        assert isinstance(values, list)
        assert values[0].encode("utf-8", "surrogateescape") == raw


def test_a_header_longer_than_one_read_is_read_whole(tmp_path: Path) -> None:
    words = [f"word{index}" * 3 for index in range(262_144)]
    payload = struct.pack("<IQ", STRING, len(words)) + b"".join(map(text, words))
    content = build([key("tokens", ARRAY, payload), key("after", UINT32, struct.pack("<I", 7))], [])
    assert len(content) > 2 * (4 << 20)
    start = time.process_time()
    with opened(tmp_path, content) as file:
        taken_s = time.process_time() - start
        assert file.metadata["tokens"] == words
        assert file.metadata["after"] == 7
    assert taken_s < 0.5


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a GGUF file"),
    "another format": (b"PK\x03\x04" + b"\0" * 100, "not a GGUF file"),
    "version 1": (build([], [], version=1), "GGUF version 1, supported are 2 and 3"),
    "big-endian": (build([], [], version=3 << 24), "big-endian"),
    "2^60 tensors": (build([], [], counts=(2**60, 0)), "claims 1152921504606846976 tensors"),
    "2^60 keys": (build([], [], counts=(0, 2**60)), "claims 1152921504606846976 keys"),
    "a string past the end": (build([struct.pack("<Q", 2**50) + b"k" * 60], []), "needs 1125899906842624 bytes"),
    "a key of an unknown type": (build([key("k", 99, b"\0" * 8)], []), "metadata 'k' is of type 99"),
    "2^61 strings": (build([key("k", ARRAY, struct.pack("<IQ", STRING, 2**61))], []), "'k' claims"),
    "2^61 numbers": (build([key("k", ARRAY, struct.pack("<IQ", UINT32, 2**61))], []), "'k' needs"),
    "an array of arrays": (build([key("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + b"\0" * 12)], []), "is of type 9"),
    "a key twice": (build([key("k", UINT32, b"\0" * 4)] * 2, []), "metadata key 'k' appears twice"),
    "a tensor twice": (build([], [tensor("t", [1])] * 2, data=b"\0" * 32), "tensor 't' appears twice"),
    "nine dimensions": (build([], [tensor("t", [1] * 9)], data=b"\0" * 32), "tensor 't' has 9 dimensions"),
    "no dimensions": (build([], [tensor("t", [])], data=b"\0" * 64), "tensor 't' has 0 dimensions"),
    "a dimension of 0": (build([], [tensor("t", [4, 0])], data=b"\0" * 32), "dimension of size 0"),
    "an unknown tensor type": (build([], [tensor("t", [1], kind=999)], data=b"\0" * 32), "unknown type 999"),
    "half a block": (
        build([], [tensor("t", [33], kind=8)], data=b"\0" * 64),
        "rows of 33, not a multiple of Q8_0's 32",
    ),
    "an odd offset": (build([], [tensor("t", [1], offset=3)], data=b"\0" * 32), "not a multiple of the alignment"),
    "alignment 0": (build([key("general.alignment", UINT32, struct.pack("<I", 0))], []), "general.alignment is 0"),
    "alignment 48": (build([key("general.alignment", UINT32, struct.pack("<I", 48))], []), "general.alignment is 48"),
    "alignment 1.0": (build([key("general.alignment", FLOAT32, struct.pack("<f", 1))], []), "general.alignment is 1.0"),
    "huge dimensions": (build([], [tensor("t", [2**63, 2**63])], data=b"\0" * 32), "tensor 't' needs"),
    "an offset past the end": (
        build([], [tensor("t", [8], offset=2**62)], data=b"\0" * 32),
        "tensor 't' needs 32 bytes",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_error_that_says_what(name: str, tmp_path: Path) -> None:
    content, reason = BAD_FILES[name]
    with pytest.raises(ModelLoadError) as caught:
        opened(tmp_path, content)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("model.gguf: ")
    assert "\n" not in str(caught.value)


def test_a_cut_file_names_the_tensor_the_needed_bytes_and_its_size(tmp_path: Path) -> None:
    tensors = [tensor("whole", [8]), tensor("cut", [64], offset=32)]
    content = build([], tensors, data=b"\0" * (32 + 256))[:-100]
    with pytest.raises(ModelLoadError) as caught:
        opened(tmp_path, content)
    message = str(caught.value)
    assert "'cut'" in message
    assert "256 bytes" in message
    assert f"the file has {len(content)} bytes" in message


def test_a_file_that_shrinks_while_it_is_open_is_an_error_too(tmp_path: Path) -> None:
    with opened(tmp_path, build([], [tensor("t", [64])], data=b"\0" * 256)) as file:
        with file.path.open("r+b") as handle:
            handle.truncate(100)
        with pytest.raises(ModelLoadError, match="'t': the file became shorter"):
            file.read(file.tensors["t"])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"absent\.gguf: No such file"):
        GgufFile(tmp_path / "absent.gguf")


def load_failure(path: Path) -> str:
    """What is wrong with a model, or nothing. Any other exception is the test's failure."""
    try:
        load_model(path, EngineConfig())
    except ModelLoadError as error:
        return str(error)
    return ""


def test_a_model_cut_anywhere_is_one_clean_error(tiny_gguf: Path, tmp_path: Path) -> None:
    content = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(0, len(content) - 32, 64):  # the last 32 bytes may be padding
        path.write_bytes(content[:size])
        message = load_failure(path)
        assert message
        assert "\n" not in message


def test_a_header_with_any_changed_byte_loads_or_is_one_clean_error(tiny_gguf: Path, tmp_path: Path) -> None:
    content = tiny_gguf.read_bytes()
    path = tmp_path / "flipped.gguf"
    words = content.index(b"tokenizer.ggml.tokens")
    table = content.index(b"token_embd.weight")
    # Everything but the token texts, whose bytes are data: the fixed head, the keys and the tensor table.
    places = [*range(words + 60), *range(table - 8, table + 200)]
    refused = 0
    for place in places:
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(content)
            changed[place] ^= flip
            path.write_bytes(changed)
            message = load_failure(path)
            refused += bool(message)
            assert "\n" not in message
    assert refused > len(places)
