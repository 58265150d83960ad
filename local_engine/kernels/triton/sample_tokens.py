"""A step's tokens from its logits, on the device from end to end: `local_engine.sampler.sample` is the twin.

Nothing waits for the device, no shape depends on what is drawn, and all parameters are tensors: the calls can be
captured in a CUDA graph and replayed with other rules in the same buffers.
"""

from dataclasses import dataclass

from torch import Tensor

from local_engine.kernels.triton.draw_tokens import DrawnTokens, draw_tokens
from local_engine.kernels.triton.sampling_rules import SamplingTensors
from local_engine.kernels.triton.shape_logits import shape_logits
from local_engine.kernels.triton.top_logprobs import top_logprobs

__all__ = ["SampledTokens", "sample_tokens"]


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """drawn: see `DrawnTokens`. top_logprobs float32 and top_ids int32: [B, n], best first; None where n is 0."""

    drawn: DrawnTokens
    top_logprobs: Tensor | None
    top_ids: Tensor | None


def sample_tokens(
    logits: Tensor,
    rules: SamplingTensors,
    *,
    histories: Tensor | None = None,
    num_logprobs: int = 0,
    all_greedy: bool = False,
    values: Tensor | None = None,
) -> SampledTokens:
    """logits [B, V], which are left as they are -> a token a row, its log-probability, and those of the likeliest.

    A row reads its V logits, and in float32 moves 3 V numbers more if it is drawn, 4 V if min_p cuts it and 5 V if
    top_k or top_p does; with num_logprobs it reads the logits once more. Equal to the twin but where a weight at a cut,
    or at the draw's target, is a rounding away (2e-6 of the whole). Other arguments: see `shape_logits`, `draw_tokens`.
    Raises ValueError.
    """
    shaped = shape_logits(logits, rules, histories=histories, values=values)
    drawn = draw_tokens(logits, shaped, rules, histories=histories, all_greedy=all_greedy)
    if not num_logprobs:
        return SampledTokens(drawn, None, None)
    return SampledTokens(drawn, *top_logprobs(logits, drawn.log_totals, num_logprobs))
