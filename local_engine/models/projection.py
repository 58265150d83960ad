"""Linear layers by the names of their weights: the one place where a decoder reads a matrix to multiply with."""

from collections.abc import Mapping

from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.loading.weights import Weights

__all__ = ["projection"]


def projection(weights: Weights, ops: Ops, parts: Mapping[str, int], inputs: int, *, bias: bool = False) -> Linear:
    """One linear layer over the tensors `parts`, name to output rows, one under the other. bias: each has one.

    Where several ranks have parts of the inputs, their sum.
    """
    rows = list(parts.values())
    weight = weights.stacked([f"{name}.weight" for name in parts], rows, inputs)
    linear = ops.linear(weight, weights.joined([f"{name}.bias" for name in parts], rows) if bias else None)
    return weights.summed(weights.lora_sites.adapt(linear, parts, inputs), parts)
