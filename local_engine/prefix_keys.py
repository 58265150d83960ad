"""Names for the contents of KV blocks: a hash chain, so that equal keys mean equal tokens from the first one on.

Owns what a key is made of. A key is SHA-256 over the key before it, the block's token ids and the images that reach
into it, and the chain begins with everything else that keys and values depend on. No two contents share a key, so a hit
needs no second look at tokens.
"""

from array import array
from collections.abc import Sequence as SequenceOf
from hashlib import sha256

from local_engine.images import PlacedImage

__all__ = ["extend_keys", "root_key"]


def root_key(*, weights: str, kv_dtype: str, adapter: str | None, cache_salt: str | None) -> bytes:
    """What the chain of a request begins with.

    weights, adapter: name one load each, not the model or the adapter: its name may be loaded again from other files.
    """
    # ascii() of a tuple is unambiguous: quotes are escaped, and None is no string.
    return sha256(ascii((weights, kv_dtype, adapter, cache_salt)).encode()).digest()


def extend_keys(
    keys: list[bytes],
    tokens: SequenceOf[int],
    *,
    root: bytes,
    block_size: int,
    images: SequenceOf[PlacedImage] = (),
) -> None:
    """Appends to `keys`, those of the first blocks of `tokens`, what is missing: one a full block. 1 us each."""
    for start in range(len(keys) * block_size, len(tokens) - block_size + 1, block_size):
        stop = start + block_size
        content = array("i", tokens[start:stop]).tobytes()
        content += b"".join([image.key for image in images if image.start < stop and start < image.stop])
        keys.append(sha256((keys[-1] if keys else root) + content).digest())
