"""What a grammar lets through, asked as the engine asks it: token by token, over a vocabulary of bytes."""

import numpy as np

from adapters.canonical.errors import InvalidRequest
from providers.local.grammar import Grammars
from providers.local.grammar_text import Grammar
from tests.scripted_engine import EOS_ID, Vocabulary

__all__ = ["Marking", "compiled", "follows", "refusal"]

_VOCAB_SIZE = 512


class Marking(Vocabulary):
    """With marks that are special tokens."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        super().__init__()
        self.marks = {mark: self.add(mark) for mark in marks}

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) or token_id in self.marks.values()


async def follows(grammar: Grammar | None, *texts: str, vocabulary: Vocabulary | None = None) -> list[bool]:
    """Of each text, whether an answer may be it and end there."""
    assert grammar is not None
    vocabulary = vocabulary or Vocabulary()
    grammars = compiled(vocabulary)
    return [await _follows(grammars, grammar, vocabulary.encode(text, add_special_tokens=False)) for text in texts]


def compiled(vocabulary: Vocabulary | None = None) -> Grammars:
    return Grammars(vocabulary or Vocabulary(), _VOCAB_SIZE, {EOS_ID})


async def _follows(grammars: Grammars, grammar: Grammar, ids: list[int]) -> bool:
    mask = await grammars.mask(grammar)
    is_complete = False
    for token_id in [*ids, EOS_ID]:
        if is_complete:
            return token_id == EOS_ID
        row = np.zeros(_VOCAB_SIZE // 32, np.uint32)
        mask.fill(row)
        if not row[token_id // 32] >> np.uint32(token_id % 32) & np.uint32(1):
            return False
        is_complete = mask.accept(token_id)
    return True


async def refusal(grammar: Grammar | None) -> InvalidRequest:
    """The error that a grammar is refused with."""
    assert grammar is not None
    try:
        await compiled().mask(grammar)
    except InvalidRequest as error:
        return error
    raise AssertionError("it compiles")
