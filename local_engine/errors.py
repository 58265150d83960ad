"""The errors of the engine. Facts are attributes, so no caller reads a message.

EngineError
├── InvalidInput        one parameter of a request is out of its range; `param` names it
├── UnknownAdapter      no adapter of that name is loaded
├── ContextOverflow     the prompt, or prompt and answer, do not fit the window
├── QueueFull           as many requests as the engine holds are unfinished already
├── EngineClosed        the engine stopped, or is stopping
├── RankLost            one of the processes that share a model is gone, and the engine with it
├── GenerationFailed    this one request failed while it ran; others went on
│   ├── NothingAllowed  what it asks for leaves no token that may come next
│   └── TooFewAnswers   what it asks for leaves fewer answers than it wants
└── ModelLoadError      a file cannot be served as a model; one line naming file and reason
"""

from pathlib import Path

__all__ = [
    "ContextOverflow",
    "EngineClosed",
    "EngineError",
    "GenerationFailed",
    "InvalidInput",
    "ModelLoadError",
    "NothingAllowed",
    "QueueFull",
    "RankLost",
    "TooFewAnswers",
    "UnknownAdapter",
]


class EngineError(Exception):
    """Root of everything the engine raises on purpose."""


class InvalidInput(EngineError):
    """A value outside its range. `param` is the field's name in SamplingParams or GenerationRequest."""

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param}: {reason}")
        self.param = param
        self.reason = reason


class UnknownAdapter(EngineError):
    """The request names an adapter that is not loaded, or not any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no adapter {name!r} is loaded")
        self.name = name


class ContextOverflow(EngineError):
    """The request needs more positions than the window has.

    `max_tokens` is None when the prompt alone is too long, else the explicit answer length that does not fit.
    """

    def __init__(self, *, prompt_tokens: int, limit: int, max_tokens: int | None = None) -> None:
        if max_tokens is None:
            message = f"the prompt has {prompt_tokens} tokens, which leaves no room in a window of {limit}"
        else:
            message = (
                f"{prompt_tokens} prompt tokens and {max_tokens} tokens to generate are "
                f"{prompt_tokens + max_tokens}, the window holds {limit}"
            )
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.max_tokens = max_tokens


class QueueFull(EngineError):
    """The bound on unfinished requests is reached. `retry_after_s` estimates when one of them will have ended."""

    def __init__(self, *, limit: int, retry_after_s: float) -> None:
        super().__init__(f"{limit} requests are running or waiting; try again in {retry_after_s:.0f} s")
        self.limit = limit
        self.retry_after_s = retry_after_s


class EngineClosed(EngineError):
    """No further requests are taken."""


class RankLost(EngineError):
    """The model cannot be computed any more: it takes all of its processes. The message says which ended, and why."""


class GenerationFailed(EngineError):
    """A running request that cannot go on, such as one whose logits are not numbers."""


class NothingAllowed(GenerationFailed):
    """A request that contradicts itself: its mask and its own rules leave no token that may come next."""


class TooFewAnswers(GenerationFailed):
    """A search whose mask and rules leave `found` answers of the `wanted`."""

    def __init__(self, *, found: int, wanted: int) -> None:
        super().__init__(f"the rules of the request leave {found} answers of the {wanted} asked for")
        self.found = found
        self.wanted = wanted


class ModelLoadError(EngineError):
    """A model that cannot be loaded. The message is one line: the file's name, then the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path.name}: {reason}")
        self.path = path
        self.reason = reason
