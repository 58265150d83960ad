"""A random embedding model, or cross-encoder, in a folder with a tokenizer of words."""

from pathlib import Path

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.local_engine.tiny_encoders import EncoderOracle, tiny_encoder, write_folder, write_layout

__all__ = ["CLS", "SEP", "WORDS", "write_encoder"]

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "car", "house", "runs", "un", "##known", "."]
CLS, SEP = 2, 3


def write_encoder(
    folder: Path, *, scores: bool = False, max_tokens: int | None = None, **more: object
) -> EncoderOracle:
    """Writes the model; its longest text has 40 tokens, or `max_tokens`."""
    oracle = tiny_encoder(scores=scores, vocab_size=len(WORDS))
    write_folder(oracle, folder, **more)
    if not scores:
        write_layout(folder, "mean_tokens", max_tokens=max_tokens)
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    return oracle
