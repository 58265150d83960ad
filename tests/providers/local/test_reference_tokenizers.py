"""Tokenizers from GGUF metadata against transformers' reading of the same file, or its own class, on a mixed corpus."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertTokenizer,
    GemmaTokenizer,
    LlamaTokenizer,
    Qwen2Tokenizer,
    XLMRobertaTokenizer,
)
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    convert_gguf_tokenizer,
    get_gguf_tokenizer,
)

from providers.local.gguf_pre_tokenizers import PRE_TOKENIZERS
from providers.local.gguf_tokenizer import build_tokenizer, read_metadata, read_vocabulary
from providers.local.tokenizer import load_tokenizer
from tests.providers.local.corpus import CORPUS

# Without what looks like a special token, which a vocabulary may have once only.
LEARNED = [text for text in CORPUS if "<|" not in text and "<s>" not in text] * 3

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

# Kinds that transformers splits with GPT-2's pattern or not at all; what their models' tokenizer.json has instead.
BYTES_ALONE = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS_THEN_GPT2 = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
PUBLISHED = {
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), DIGITS_THEN_GPT2
    ),
    **dict.fromkeys(
        ("glm4", "chatglm-bpe"),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"]), "isolated"), BYTES_ALONE]
        ),
    ),
    **dict.fromkeys(
        ("stablelm2", "hunyuan", "solar-open", "grok-2"),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS["qwen2"]), "isolated"), BYTES_ALONE]
        ),
    ),
}
# No reference at hand: their patterns have examples in test_gguf_tokenizer.
WITHOUT_REFERENCE = {"deepseek-coder", "deepseek-llm", "deepseek-v3", "hunyuan-dense", "joyai-llm", "seed-coder"}


def write(path: Path, architecture: str, model: str, **keys: Any) -> Path:
    """A GGUF that holds a tokenizer and nothing else. Keys are those under tokenizer.ggml."""
    writer = GGUFWriter(path, architecture)
    writer.add_tokenizer_model(model)
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def reference(path: Path) -> Tokenizer:
    architecture, tokenizer, _ = get_gguf_tokenizer(str(path))
    backend: Tokenizer = convert_gguf_tokenizer(architecture, tokenizer)[0]
    return backend


def ours(path: Path) -> Tokenizer:
    return build_tokenizer(read_vocabulary(read_metadata(path)))


def agree(mine: Tokenizer, theirs: Tokenizer, texts: tuple[str, ...] = CORPUS) -> None:
    for text in texts:
        found, expected = (each.encode(text, add_special_tokens=False).ids for each in (mine, theirs))
        assert found == expected, text


@pytest.fixture(scope="module")
def byte_pieces() -> tuple[list[str], list[str]]:
    """Tokens and merges that go over every boundary, so that each split shows."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = BYTES_ALONE
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(LEARNED, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet))
    vocabulary = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    merges = [" ".join(pair) for pair in trained_merges(trained)]
    return [text for text, _ in vocabulary], merges


def trained_merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS.keys() - WITHOUT_REFERENCE))
def test_every_byte_level_kind_encodes_as_its_reference(
    pre: str, byte_pieces: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    tokens, merges = byte_pieces
    special = ["<|im_start|>", "<|im_end|>", "<tool>"]
    path = write(
        tmp_path / "m.gguf",
        "llama",
        "gpt2",
        pre=pre,
        tokens=[*tokens, *special],
        token_type=[*[NORMAL] * len(tokens), CONTROL, CONTROL, USER_DEFINED],
        merges=merges,
        eos_token_id=len(tokens) + 1,
    )
    theirs = reference(path)
    if pre in PUBLISHED:
        theirs.pre_tokenizer = PUBLISHED[pre]
    mine = ours(path)
    if PRE_TOKENIZERS[pre].whole_words:
        theirs.model.ignore_merges = True
    agree(mine, theirs)
    assert mine.token_to_id("<|im_end|>") in mine.encode("a<|im_end|>", add_special_tokens=False).ids


def test_splits_are_told_apart_by_the_corpus(byte_pieces: tuple[list[str], list[str]]) -> None:
    tokens, merges = byte_pieces
    answers = set()
    for kind in ("gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3"):
        metadata = {"model": "gpt2", "pre": kind, "tokens": tokens, "merges": merges}
        built = build_tokenizer(read_vocabulary({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}))
        answers.add(str([built.encode(text).ids for text in CORPUS]))
    assert len(answers) == 8


def sentence_pieces() -> tuple[list[str], list[float], list[int]]:
    """SentencePiece BPE as Llama's and Gemma's: special pieces, bytes, then pieces, the better the earlier."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [text.replace("\n", " ") for text in LEARNED]
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1200))
    # Characters of the rarer scripts are left to the bytes.
    pieces = [text for text, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    pieces = [text for text in pieces if not any(0x900 <= ord(letter) < 0xE80 or letter == "🙂" for letter in text)]
    words = [text for text in pieces if len(text) > 1 and text.strip("▁")]
    letters = [text for text in pieces if len(text) == 1 and text != "\t"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters]
    scores = [0.0] * 259 + [float(-rank) for rank in range(len(words) + len(letters))]
    return tokens, scores, [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(words) + len(letters))]


def test_llamas_sentencepiece_encodes_as_its_reference(tmp_path: Path) -> None:
    tokens, scores, types = sentence_pieces()
    path = write(
        tmp_path / "m.gguf",
        "phi3",  # whose reference puts the space before the text as Llama's own tokenizer.json does
        "llama",
        tokens=tokens,
        scores=scores,
        token_type=types,
        unknown_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    agree(ours(path), reference(path), tuple(text for text in CORPUS if "<s>" not in text))


def test_gemmas_sentencepiece_encodes_as_its_reference(tmp_path: Path) -> None:
    tokens, scores, types = sentence_pieces()
    runs = [" " * length for length in range(2, 32)] + ["\n" * length for length in range(1, 8)] + ["\t", "<tool>"]
    path = write(
        tmp_path / "m.gguf",
        "gemma3",
        "llama",
        # As in Gemma's vocabulary, pieces of the user come before those that were learned.
        tokens=[*tokens[:259], *runs, *tokens[259:]],
        scores=[*scores[:259], *[-1000.0] * len(runs), *(score - 10_000 for score in scores[259:])],
        token_type=[*types[:259], *[USER_DEFINED] * len(runs), *types[259:]],
        unknown_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        add_space_prefix=False,
    )
    agree(ours(path), reference(path))


def test_phi3s_special_tokens_swallow_the_space_behind_them(tmp_path: Path) -> None:
    tokens, scores, types = sentence_pieces()
    keys = {"scores": [*scores, 0.0], "token_type": [*types, CONTROL], "unknown_token_id": 0}
    path = write(tmp_path / "m.gguf", "phi3", "llama", tokens=[*tokens, "<|user|>"], **keys)
    tokenizer = ours(path)
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("<|user|>\nHello", "<|user|>Hello")]
    assert ids[0] == ids[1]
    assert tokenizer.encode("<s>\n", add_special_tokens=False).ids != tokenizer.encode("<s>").ids[1:]


def unigram_pieces() -> list[tuple[str, float]]:
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>"
    )
    trained.train_from_iterator(LEARNED, trainer)
    # Scores as a file keeps them, so that equally good splits are equal to both.
    return [(text, float(np.float32(score))) for text, score in json.loads(trained.to_str())["model"]["vocab"]]


def test_unigram_encodes_as_its_reference(tmp_path: Path) -> None:
    pieces = unigram_pieces()
    path = write(
        tmp_path / "m.gguf",
        "bert",
        "t5",
        tokens=[text for text, _ in pieces],
        scores=[score for _, score in pieces],
        token_type=[CONTROL, CONTROL, CONTROL, UNKNOWN, *[NORMAL] * (len(pieces) - 4)],
        unknown_token_id=3,
        bos_token_id=0,
        eos_token_id=2,
        add_bos_token=True,
        add_eos_token=True,
    )
    theirs = XLMRobertaTokenizer(vocab=pieces)
    mine = ours(path)
    agree(mine, theirs.backend_tokenizer)
    assert mine.encode("Hello world").ids == theirs.encode("Hello world")
    assert mine.encode("Hello", "world").ids == theirs.encode("Hello", "world")


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_encodes_as_its_reference(lowercase: bool, tmp_path: Path) -> None:
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    texts = [text for text in LEARNED if "ไทย" not in text]
    trained.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special))
    ids = trained.get_vocab()
    texts = sorted(ids, key=lambda text: ids[text])
    path = write(
        tmp_path / "m.gguf",
        "bert",
        "bert",
        # As the converter has it: what begins a word is marked, instead of what goes on with one.
        tokens=[*special, *(text[2:] if text.startswith("##") else f"▁{text}" for text in texts[5:])],
        token_type=[*[CONTROL] * 5, *[NORMAL] * (len(texts) - 5)],
        unknown_token_id=1,
        cls_token_id=2,
        seperator_token_id=3,
        **({} if lowercase else {"normalizer.lowercase": False}),
    )
    theirs = BertTokenizer(vocab=ids, do_lower_case=lowercase)
    mine = ours(path)
    agree(mine, theirs.backend_tokenizer)
    for text in CORPUS:
        assert mine.encode(text).ids == theirs.encode(text), text
    pair, expected = mine.encode("Hello", "world"), theirs("Hello", "world")
    assert (pair.ids, pair.type_ids) == (expected["input_ids"], expected["token_type_ids"])
    assert mine.decode(mine.encode("Hello world", add_special_tokens=False).ids).lower() == "hello world"
    assert isinstance(mine.decoder, decoders.WordPiece)


def saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["llama", "gemma", "qwen2", "xlm_roberta", "bert"])
def test_a_folder_that_transformers_saved_encodes_as_transformers(
    name: str, byte_pieces: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    tokens, _, _ = sentence_pieces()
    vocabulary = {text: index for index, text in enumerate(tokens)}
    merges = [pair for pair in ((text[:-1], text[-1:]) for text in tokens[259:]) if set(pair) <= vocabulary.keys()]
    bytes_of = {text: index for index, text in enumerate(byte_pieces[0])}
    made: Any
    match name:
        case "llama":
            made = LlamaTokenizer(vocab=vocabulary, merges=merges)
        case "gemma":
            made = GemmaTokenizer(vocab=vocabulary | {"<bos>": 9000, "<eos>": 9001}, merges=merges)
        case "qwen2":
            pairs = [tuple(merge.split(" ")) for merge in byte_pieces[1]]
            made = Qwen2Tokenizer(vocab=bytes_of | {"<|endoftext|>": len(bytes_of)}, merges=pairs)
        case "xlm_roberta":
            made = XLMRobertaTokenizer(vocab=unigram_pieces())
        case _:
            words = [
                "[PAD]",
                "[UNK]",
                "[CLS]",
                "[SEP]",
                "[MASK]",
                "hello",
                "world",
                "##s",
                "a",
                "##b",
                "##a",
                "!",
                "привет",
            ]
            made = BertTokenizer(vocab={text: index for index, text in enumerate(words)})
    ours = load_tokenizer(saved(made, tmp_path))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS:
        for special in (True, False):
            expected = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == expected, text
    assert ours.eos_token == (theirs.eos_token or "")
    if theirs.eos_token_id is not None:
        assert ours.eos_ids == {theirs.eos_token_id}
