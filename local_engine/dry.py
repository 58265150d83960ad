"""The DRY penalty: how much less likely tokens become that would go on with a repetition. Knows no tensors of torch."""

from collections.abc import Sequence

import numpy as np

from local_engine.sampling import Dry

__all__ = ["dry_penalties"]

# A repetition counts for so many tokens beyond the allowed ones: the penalty has long become infinite then, and no text
# costs more than as many looks at each of its tokens. (text-generation-webui stops at 50 tokens as well.)
_REACH = 50
# What float32 holds beside any logit.
_MOST = 1e30


def dry_penalties(tokens: Sequence[int], dry: Dry) -> dict[int, float]:
    """What is to be taken off the logits of the tokens that may follow `tokens`; of all others it is nothing."""
    least = max(dry.allowed_length, 1)
    limit = _unbroken(tokens, dry, dry.allowed_length + _REACH)
    if limit < least:
        return {}
    text = np.array(tokens, dtype=np.int32)
    last = len(text) - 1
    # How many tokens up to each place are those at the end, and which places still have one more of them.
    alike = text[:last] == text[last]
    lengths = alike.astype(np.int32)
    for length in range(1, limit):
        alike = alike[1:] & (text[: last - length] == text[last - length])
        if not alike.any():
            break
        lengths[length:] += alike
    places = np.flatnonzero(lengths >= least)
    places = places[np.argsort(lengths[places], kind="stable")]
    longest = dict(
        zip(text[places + 1].tolist(), lengths[places].tolist(), strict=True)
    )  # of a token's, the last stays
    return {
        token: min(dry.multiplier * dry.base ** (length - dry.allowed_length), _MOST)
        for token, length in longest.items()
        if token not in dry.breakers
    }


def _unbroken(tokens: Sequence[int], dry: Dry, most: int) -> int:
    """How many tokens at the end stand behind every breaker, up to `most`."""
    most = min(most, len(tokens))
    for count in range(most):
        end = len(tokens) - count
        if tokens[end - 1] in dry.breakers or any(
            tuple(tokens[max(end - len(phrase), 0) : end]) == phrase for phrase in dry.phrases
        ):
            return count
    return most
