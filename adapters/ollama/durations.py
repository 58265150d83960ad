"""How long an answer took, as Ollama's last line says it: nanoseconds. Clients reckon tokens a second from them."""

from collections.abc import Mapping

__all__ = ["duration_fields"]


def duration_fields(*, total_ns: int, prompt_ns: int, answer_ns: int) -> Mapping[str, bytes]:
    """Raw fields. The model is there before anybody asks; what took no time that can be told took one nanosecond, since
    clients divide by it."""
    told = {
        "total_duration": total_ns,
        "load_duration": 1,
        "prompt_eval_duration": prompt_ns,
        "eval_duration": answer_ns,
    }
    return {name: b"%d" % max(taken, 1) for name, taken in told.items()}
