"""How models of each format write a call, for tests: what their chat templates write for a turn that is over."""

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["WRITERS", "written_calls"]

_QUOTE = '<|"|>'
Call = tuple[str, Mapping[str, Any]]


def written_calls(form: str, *calls: Call) -> str:
    """Calls of one turn, (name, arguments) each."""
    return WRITERS[form](calls)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _objects(calls: tuple[Call, ...], key: str = "arguments") -> list[str]:
    return [f'{{"name": {_json(name)}, "{key}": {_json(arguments)}}}' for name, arguments in calls]


def _cohere(number: int, call: Call) -> str:
    name, arguments = call
    return f'{{"tool_call_id": "{number}", "tool_name": {_json(name)}, "parameters": {_json(arguments)}}}'


def _python(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_python, value)) + "]"
        case _:
            return repr(value)


def _python_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _gemma(value: object, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return "{" + ",".join(f"{key}:{_gemma(item, quote)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(_gemma(item, quote) for item in value) + "]"
        case _:
            return _json(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _qwen(calls: tuple[Call, ...], mark: str) -> str:
    blocks = []
    for name, arguments in calls:
        values = "".join(f"<parameter={key}>\n{_plain(value)}\n</parameter>\n" for key, value in arguments.items())
        blocks.append(f"<{mark}>\n<function={name}>\n{values}</function>\n</{mark}>")
    return "\n".join(blocks)


def _invokes(calls: tuple[Call, ...], outer: str, tag: str, *, flags: bool) -> str:
    lines = [f"<{outer}>"]
    for name, arguments in calls:
        lines.append(f'<{tag}invoke name="{name}">')
        for key, value in arguments.items():
            flag = f' string="{"true" if isinstance(value, str) else "false"}"' if flags else ""
            lines.append(f'<{tag}parameter name="{key}"{flag}>{_plain(value)}</{tag}parameter>')
        lines.append(f"</{tag}invoke>")
    return "\n".join([*lines, f"</{outer}>"])


def _glm(calls: tuple[Call, ...]) -> str:
    return "\n".join(
        f"<tool_call>{name}"
        + "".join(f"\n<arg_key>{key}</arg_key>\n<arg_value>{_plain(value)}</arg_value>" for key, value in args.items())
        + "\n</tool_call>"
        for name, args in calls
    )


def _deepseek(calls: tuple[Call, ...], *, fenced: bool) -> str:
    def one(name: str, arguments: str) -> str:
        inner = (
            f"function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```" if fenced else f"{name}<｜tool▁sep｜>{arguments}"
        )
        return f"<｜tool▁call▁begin｜>{inner}<｜tool▁call▁end｜>"

    between = "\n" if fenced else ""
    inner = between.join(one(name, _json(arguments)) for name, arguments in calls)
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def _kimi(calls: tuple[Call, ...]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
        for number, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


WRITERS: Mapping[str, Callable[[tuple[Call, ...]], str]] = {
    "hermes": lambda calls: "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in _objects(calls)),
    "llama3_json": lambda calls: "; ".join(_objects(calls, "parameters")),
    "mistral": lambda calls: f"[TOOL_CALLS][{', '.join(_objects(calls))}]",
    "granite": lambda calls: f"<|tool_call|>[{', '.join(_objects(calls))}]",
    "cohere": lambda calls: f"<|START_ACTION|>[{', '.join(map(_cohere, range(len(calls)), calls))}]<|END_ACTION|>",
    "mistral_args": lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(args)}" for name, args in calls),
    "json": lambda calls: f"```json\n[{', '.join(_objects(calls))}]\n```",
    "pythonic": lambda calls: f"[{', '.join(_python_call(*call) for call in calls)}]",
    "lfm2": lambda calls: f"<|tool_call_start|>[{', '.join(_python_call(*call) for call in calls)}]<|tool_call_end|>",
    "olmo3": lambda calls: "\n".join(
        ["<function_calls>", *(_python_call(*call) for call in calls), "</function_calls>"]
    ),
    "tool_code": lambda calls: "\n".join(["```tool_code", *(_python_call(*call) for call in calls), "```"]),
    "gemma": lambda calls: "".join(
        f"<|tool_call>call:{name}{_gemma(args, _QUOTE)}<tool_call|>" for name, args in calls
    ),
    "function_gemma": lambda calls: "".join(
        f"<start_function_call>call:{name}{_gemma(args, '<escape>')}<end_function_call>" for name, args in calls
    ),
    "deepseek_v3": lambda calls: _deepseek(calls, fenced=True),
    "deepseek_v31": lambda calls: _deepseek(calls, fenced=False),
    "deepseek_v32": lambda calls: _invokes(calls, "｜DSML｜function_calls", "｜DSML｜", flags=True),
    "qwen3_coder": lambda calls: _qwen(calls, "tool_call"),
    "seed_oss": lambda calls: _qwen(calls, "seed:tool_call"),
    "minimax_m2": lambda calls: _invokes(calls, "minimax:tool_call", "", flags=False),
    "glm": _glm,
    "kimi_k2": _kimi,
}
