"""Mamba-2's state space: a matrix a head that forgets, and takes in each input along a direction of its own.

For a token with input x, step size d, directions b and c, and a head's rate r < 0, the state S [N, P] becomes
exp(d r) S + b (d x), and the output is c S (Dao and Gu 2024, section 6). Decoding computes just that. A prompt is
computed in chunks, so that all work is in products of matrices.
"""

import torch
from torch import Tensor

__all__ = ["CHUNK", "mamba2"]

CHUNK = 64
"""Tokens that are computed at once."""


def mamba2(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, *, state: Tensor) -> tuple[Tensor, Tensor]:
    """x [B, T, H, P], times its step size; log_decay [B, T, H]; b and c [B, T, H, N]; state [B, H, N, P]; float32.

    Returns outputs [B, T, H, P] and the state behind them.
    """
    if x.shape[1] == 1:
        return _step(x, log_decay, b, c, state)
    return _chunks(x, log_decay, b, c, state)


def _step(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    batch, _, heads, width = x.shape
    # Sequences and heads as one batch of products of a row and a matrix.
    decayed = (state * log_decay.exp().view(batch, heads, 1, 1)).flatten(0, 1)
    new = decayed.baddbmm_(b.reshape(batch * heads, -1, 1), x.reshape(batch * heads, 1, width))
    return (c.reshape(batch * heads, 1, -1) @ new).view(batch, 1, heads, width), new.view_as(state)


def _chunks(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    length = x.shape[1]
    count = -(-length // CHUNK)
    size = -(-length // count)
    # Rows of padding are zeros with decay 1, so they change nothing.
    x, b, c, decays = (_cut(part, count, size) for part in (x, b, c, log_decay.unsqueeze(-1)))

    # decay_to[t]: from before the chunk up to t. between[t, s]: from s to t, 0 for later ones.
    log_decay_to = decays.cumsum(-2)
    decay_to = log_decay_to.exp()
    later = torch.ones(size, size, dtype=torch.bool, device=x.device).triu(1)
    between = (log_decay_to - log_decay_to.transpose(-1, -2)).masked_fill(later, -torch.inf).exp()

    within = (c @ b.transpose(-1, -2)).mul_(between) @ x
    c = c * decay_to
    added = (b * (log_decay_to[..., -1:, :] - log_decay_to).exp()).transpose(-1, -2) @ x
    outputs = []
    for chunk in range(count):
        outputs.append(within[:, chunk] + c[:, chunk] @ state)
        state = torch.addcmul(added[:, chunk], state, decay_to[:, chunk, :, -1:])
    return torch.stack(outputs, 1).transpose(2, 3).flatten(1, 2)[:, :length], state


def _cut(x: Tensor, count: int, size: int) -> Tensor:
    """[B, T, H, D] -> [B, count, H, size, D], padded with zeros."""
    missing = count * size - x.shape[1]
    if missing:
        x = torch.cat((x, x.new_zeros(x.shape[0], missing, *x.shape[2:])), 1)
    return x.reshape(x.shape[0], count, size, *x.shape[2:]).transpose(2, 3).contiguous()
