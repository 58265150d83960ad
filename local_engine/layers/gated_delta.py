"""The gated delta rule: a matrix a head that forgets, and is corrected by what it says wrongly of each key.

For a token with key k, value v, decay a and strength b, the state S [D, E] becomes a S + b k (v - k a S), and the
output is q S (Yang, Kautz, Hatamizadeh 2024, section 3). Decoding computes just that. A prompt is computed in chunks,
whose corrections solve one triangular system each, so that all work is in products of matrices (section 3.3).
"""

import torch
from torch import Tensor

__all__ = ["CHUNK", "gated_delta"]

CHUNK = 64
"""Tokens that are solved at once."""


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, *, state: Tensor
) -> tuple[Tensor, Tensor]:
    """q, k [B, T, H, D], v [B, T, H, E], log_decay and strength [B, T, H], state [B, H, D, E], all float32.

    Returns outputs [B, T, H, E] and the state behind them. Queries and keys come in the length that they are to have.
    """
    if q.shape[1] == 1:
        return _step(q, k, v, log_decay, strength, state)
    return _chunks(q, k, v, log_decay, strength, state)


def _step(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    batch, _, heads, key_dim = k.shape
    # Sequences and heads as one batch of products of a row and a matrix.
    queries, keys, values = (x.reshape(batch * heads, 1, -1) for x in (q, k, v))
    decayed = (state * log_decay.exp().view(batch, heads, 1, 1)).flatten(0, 1)
    correction = (values - keys @ decayed).mul_(strength.reshape(-1, 1, 1))
    new = decayed.baddbmm_(keys.view(-1, key_dim, 1), correction)
    return (queries @ new).view(batch, 1, heads, -1), new.view_as(state)


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    length = q.shape[1]
    count = -(-length // CHUNK)
    size = -(-length // count)
    # Rows of padding have strength 0 and decay 1, so they change nothing.
    queries, keys, values = (_cut(x, count, size) for x in (q, k, v))
    decays, strengths = (_cut(x.unsqueeze(-1), count, size) for x in (log_decay, strength))

    # decay_to[t]: from before the chunk up to t. between[t, s]: from s to t, 0 for later ones.
    log_decay_to = decays.cumsum(-2)
    decay_to = log_decay_to.exp()
    later = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    between = (log_decay_to - log_decay_to.transpose(-1, -2)).masked_fill(later, -torch.inf).exp()

    strong_keys = keys * strengths
    # Each token's correction depends on those before it in its chunk: a unit lower triangular system.
    system = (strong_keys @ keys.transpose(-1, -2)) * between
    wanted = torch.cat((values * strengths, strong_keys * decay_to), -1)
    solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    fresh, from_state = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]

    within = (queries @ keys.transpose(-1, -2)) * between
    queries = queries * decay_to
    carried = (keys * (log_decay_to[..., -1:, :] - log_decay_to).exp()).transpose(-1, -2)
    outputs = []
    for chunk in range(count):
        correction = fresh[:, chunk] - from_state[:, chunk] @ state
        outputs.append(queries[:, chunk] @ state + within[:, chunk] @ correction)
        state = torch.baddbmm(
            (state * decay_to[:, chunk, :, -1:]).flatten(0, 1),
            carried[:, chunk].flatten(0, 1),
            correction.flatten(0, 1),
        ).view_as(state)
    return torch.stack(outputs, 1).transpose(2, 3).flatten(1, 2)[:, :length], state


def _cut(x: Tensor, count: int, size: int) -> Tensor:
    """[B, T, H, D] -> [B, count, H, size, D], padded with zeros."""
    missing = count * size - x.shape[1]
    if missing:
        x = torch.cat((x, x.new_zeros(x.shape[0], missing, *x.shape[2:])), 1)
    return x.reshape(x.shape[0], count, size, *x.shape[2:]).transpose(2, 3).contiguous()
