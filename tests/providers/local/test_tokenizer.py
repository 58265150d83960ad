import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

from local_engine.errors import ModelLoadError
from providers.local.model_source import fetch
from providers.local.tokenizer import FastTokenizer, SpecialTokens, TokenizerError, load_tokenizer
from tests.providers.local.corpus import CORPUS


def save(backend: Backend, folder: Path, **settings: object) -> Path:
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def trained() -> Backend:
    """A small byte-level tokenizer as models ship it: BOS template, special and plain added tokens, truncation on."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    )
    backend.add_tokens([AddedToken("<tool_call>", normalized=False)])
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.enable_truncation(4)
    return backend


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> FastTokenizer:
    return load_tokenizer(smollm2_path, cache=tmp_path_factory.mktemp("tokenizers"))


def test_a_folder_encodes_as_transformers_does(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    folder = save(trained(), tmp_path, bos_token="<s>", eos_token={"content": "</s>"})
    ours = load_tokenizer(folder)
    oracle = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for text in CORPUS:
        for special in (False, True):
            assert ours.encode(text, add_special_tokens=special) == oracle.encode(text, add_special_tokens=special), (
                text
            )
    assert (ours.bos_id, ours.bos_token, ours.eos_token, ours.eos_ids) == (0, "<s>", "</s>", frozenset({1}))


def test_a_text_that_begins_with_the_models_mark_gets_no_second_one(tmp_path: Path) -> None:
    ours = load_tokenizer(save(trained(), tmp_path, bos_token="<s>", eos_token={"content": "</s>"}))
    once = ours.encode("hi", add_special_tokens=True)
    assert ours.encode("<s>hi", add_special_tokens=True) == ours.encode("<s>hi", add_special_tokens=False) == once
    assert ours.encode("a<s>hi", add_special_tokens=True).count(0) == 2


def test_marks_that_the_client_wrote_stay_where_the_model_adds_none(smollm2: FastTokenizer) -> None:
    assert smollm2.encode("<|im_start|>" * 3, add_special_tokens=True) == [1, 1, 1]


def test_end_ids_of_the_generation_config_are_taken_too(tmp_path: Path) -> None:
    folder = save(trained(), tmp_path, eos_token="</s>")
    (folder / "config.json").write_text('{"eos_token_id": 7}')
    assert load_tokenizer(folder).eos_ids == {1, 7}
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert load_tokenizer(folder).eos_ids == {1, 5}


def test_added_tokens_are_their_text_and_only_special_ones_are_special(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(save(trained(), tmp_path))
    call, end = tokenizer.encode("<tool_call><|im_end|>", add_special_tokens=False)
    assert (tokenizer.token_bytes(call), tokenizer.is_special(call)) == (b"<tool_call>", False)
    assert (tokenizer.token_bytes(end), tokenizer.is_special(end)) == (b"<|im_end|>", True)


def test_ids_outside_the_vocabulary_have_no_text(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(save(trained(), tmp_path))
    assert tokenizer.token_bytes(tokenizer.vocab_size) == tokenizer.token_bytes(-1) == b""
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == b"<|im_end|>"


def test_sentencepiece_pieces_are_spaces_and_bytes() -> None:
    vocabulary = {"<unk>": 0, "<0xF0>": 1, "<0x0A>": 2, "▁the": 3, "a▁": 4}
    backend = Backend(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = FastTokenizer(backend, SpecialTokens(None, "", "", frozenset()))
    assert [tokenizer.token_bytes(i) for i in range(5)] == [b"<unk>", b"\xf0", b"\n", b" the", b"a "]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello world", [19556, 905]),
        (" 123", [216, 33, 34, 35]),
        ("<|im_start|>user\n", [1, 4093, 198]),
        ("<|im_end|>", [2]),
        ("", []),
    ],
)
def test_the_builtin_model_encodes_to_its_known_ids(smollm2: FastTokenizer, text: str, ids: list[int]) -> None:
    assert smollm2.encode(text, add_special_tokens=False) == ids
    assert smollm2.encode(text, add_special_tokens=True) == ids  # its file says add_bos_token: false


def test_the_builtin_model_is_described_by_its_file(smollm2: FastTokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_id, smollm2.bos_token, smollm2.eos_token) == (1, "<|im_start|>", "<|im_end|>")
    assert smollm2.eos_ids == {0, 2}
    assert smollm2.is_special(2)
    assert not smollm2.is_special(19556)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "gemma3-270m"])
def test_the_builtin_models_encode_a_mixed_corpus_as_transformers_reads_their_files(name: str, tmp_path: Path) -> None:
    path = fetch(name)
    architecture, metadata, _ = get_gguf_tokenizer(str(path))
    backend, _ = convert_gguf_tokenizer(architecture, metadata)
    if (
        metadata["pre_tokenizer_type"] == "smollm"
    ):  # transformers leaves out what the model's tokenizer.json begins with
        digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    ours = load_tokenizer(path, cache=tmp_path)
    for text in CORPUS:
        assert ours.encode(text, add_special_tokens=False) == backend.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("text", ["\n", "e", "the", " a", "é", "xyzzy", "m_end", "|>"])
def test_tokens_with_a_text_are_those_whose_bytes_hold_it(tmp_path: Path, text: str) -> None:
    tokenizer = load_tokenizer(save(trained(), tmp_path))
    expected = {token for token in range(tokenizer.vocab_size) if text.encode() in tokenizer.token_bytes(token)}
    assert tokenizer.tokens_with(text) == expected


# The model has no token for some control bytes, nor for the lead bytes of unassigned planes.
@given(text=st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=60))
def test_joined_token_bytes_are_the_text(smollm2: FastTokenizer, text: str) -> None:
    ids = smollm2.encode(text, add_special_tokens=False)
    assert b"".join(map(smollm2.token_bytes, ids)) == text.encode()


def test_other_threads_run_while_a_long_text_is_encoded(smollm2: FastTokenizer) -> None:
    text = "The quick brown fox, 123 times. " * 15_000
    thread = threading.Thread(target=smollm2.encode, args=(text,), kwargs={"add_special_tokens": False})
    turns = 0  # of this thread; one or two while the other one keeps the interpreter to itself
    thread.start()
    while thread.is_alive():
        turns += 1
    assert turns > 1000


def test_bytes_of_a_character_cut_over_tokens_are_reported_as_they_are(smollm2: FastTokenizer) -> None:
    ids = smollm2.encode("😊", add_special_tokens=False)
    assert len(ids) > 1
    assert b"".join(map(smollm2.token_bytes, ids)) == bytes([240, 159, 152, 138])


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "header", "empty", "unwritable"])
def test_a_second_start_reads_the_cache_and_survives_damage_to_it(
    smollm2_path: Path, smollm2: FastTokenizer, tmp_path: Path, damage: str
) -> None:
    source = tiny_gguf(tmp_path / "tiny.gguf")
    cache = tmp_path / "cache"
    before = load_tokenizer(source, cache=cache)
    (entry,) = cache.iterdir()
    content = entry.read_bytes()
    damaged = {
        "none": content,
        "cut": content[:-20],
        "flipped": content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
        "header": b"[]\n" + content,
        "empty": b"",
        "unwritable": content,
    }[damage]
    entry.write_bytes(damaged)
    if damage == "unwritable":
        shutil.rmtree(cache)
        cache.write_text("a file where the folder should be")
    after = load_tokenizer(source, cache=cache)
    for text in CORPUS:
        assert after.encode(text, add_special_tokens=True) == before.encode(text, add_special_tokens=True)
    assert (after.bos_id, after.eos_ids, after.vocab_size) == (before.bos_id, before.eos_ids, before.vocab_size)
    if damage != "unwritable":
        assert entry.read_bytes() == content


def test_a_cached_tokenizer_is_used_without_reading_the_model_again(tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "tiny.gguf")
    before = load_tokenizer(source, cache=tmp_path / "cache")
    times = source.stat()
    source.write_bytes(bytes(times.st_size))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = load_tokenizer(source, cache=tmp_path / "cache")
    assert after.encode("the a", add_special_tokens=False) == before.encode("the a", add_special_tokens=False)


def test_a_changed_model_file_gets_a_new_entry_and_loses_the_old_one(tmp_path: Path) -> None:
    source, cache = tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "cache"
    load_tokenizer(source, cache=cache)
    (first,) = cache.iterdir()
    os.utime(source, ns=(1, 1))
    load_tokenizer(source, cache=cache)
    (second,) = cache.iterdir()
    assert first.name != second.name


@pytest.mark.parametrize(
    ("name", "content"), [("tokenizer.json", "{}"), ("tokenizer_config.json", "{"), ("tokenizer_config.json", "[]")]
)
def test_a_broken_file_of_a_folder_is_named(tmp_path: Path, name: str, content: str) -> None:
    folder = save(trained(), tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(TokenizerError, match=name):
        load_tokenizer(folder)


def test_a_model_file_that_is_cut_anywhere_is_a_clean_error(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(0, len(whole), 64):
        cut.write_bytes(whole[:size])
        with pytest.raises((ModelLoadError, TokenizerError)):
            load_tokenizer(cut, cache=tmp_path / "cache")


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)


def tiny_gguf(path: Path) -> Path:
    """A GGUF file that holds a tokenizer and nothing else."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "<|im_end|>"])
    writer.add_token_types([1] * 258 + [3])
    writer.add_token_merges(["t h", "th e"])
    writer.add_eos_token_id(258)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
