"""What a model can do, as lists of models tell it."""

__all__ = ["EMBED", "GENERATE", "RANK"]

GENERATE = "generate"
EMBED = "embed"
RANK = "rank"
