"""`gateway chat MODEL`: talk to a model in the terminal, or answer a prompt from a pipe."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.configuration import Endpoint, client_key, endpoint, endpoint_at, load
from gateway.cli.failure import CommandFailed

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam

    from gateway.client import Gateway

__all__ = ["EXAMPLE", "SUMMARY", "Conversation", "add_arguments", "run", "talk"]

SUMMARY = "talk to a model in the terminal"
EXAMPLE = "gateway chat local/smollm2-135m-instruct, or: echo 'Why is the sky blue?' | gateway chat fast"

KEY_VARIABLE = "LLM_GATEWAY_API_KEY"
_PROBE_TIMEOUT_S = 2.0
_ANSWER_TIMEOUT_S = 600.0
_TEMPERATURE = 0.7
_NO_TEXT = "the prompt is not text in UTF-8"

Write = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name of `models:`, or provider/model")
    parser.add_argument(
        "--url",
        help="base URL of a running gateway, as http://127.0.0.1:8080 or .../v1, or unix:FILE "
        f"(default: that of run.yaml); its key is taken from ${KEY_VARIABLE}",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help=f"(default: the model's own, or {_TEMPERATURE} where the files of a local model recommend none)",
    )


def run(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        client.wait_until_loaded(arguments.model)  # which may draw its progress where the prompt would stand
        temperature = arguments.temperature
        if temperature is None:
            temperature = _default_temperature(client, arguments.model)
        conversation = Conversation(client, arguments.model, temperature=temperature)
        if sys.stdin.isatty():
            with suppress(ImportError):  # not on every platform
                importlib.import_module("readline")  # gives input() line editing and a history
            talk(conversation, input, _write)
        else:
            _answer_pipe(conversation)
    return 0


class Conversation:
    """The turns so far. Only turns that were answered, at least in part, are kept. `temperature` None: the model's."""

    def __init__(self, client: "OpenAI", model: str, *, temperature: float | None = None) -> None:
        self._client = client
        self._model = model
        self._temperature = temperature
        self._messages: list[ChatCompletionMessageParam] = []

    def ask(self, prompt: str, write: Write) -> bool:
        """Writes the answer as it comes; False if the user stopped it with Ctrl-C.

        Raises CommandFailed with one line if there is no whole answer; the turn is forgotten then.
        """
        from openai import OpenAIError, omit

        turn: ChatCompletionMessageParam = {"role": "user", "content": prompt}
        parts: list[str] = []
        whole = True
        try:
            with self._client.chat.completions.create(
                model=self._model,
                messages=[*self._messages, turn],
                temperature=omit if self._temperature is None else self._temperature,
                stream=True,
            ) as stream:
                for chunk in stream:
                    for choice in chunk.choices:
                        said = choice.delta.content or choice.delta.refusal
                        if said:
                            parts.append(said)
                            write(said)
        except KeyboardInterrupt:
            whole = False
        except OpenAIError as error:
            raise CommandFailed(_one_line(error)) from None
        if parts:
            self._messages += [turn, {"role": "assistant", "content": "".join(parts)}]
        return whole


def _default_temperature(client: "OpenAI", model: str) -> float | None:
    """None: the model's own, or nobody knows. Small models ramble at 1, which the API has where nothing is said."""
    from openai import OpenAIError

    try:
        known = client.models.retrieve(model, timeout=_PROBE_TIMEOUT_S).model_extra or {}
    except OpenAIError:
        return None  # what is asked next tells why
    defaults = known.get("gateway", {}).get("defaults")
    return _TEMPERATURE if defaults is not None and "temperature" not in defaults else None


def talk(conversation: Conversation, read_line: Callable[[str], str], write: Write) -> None:
    """Reads prompts and writes answers until `/exit` or the end of the input."""
    write("Ctrl-C stops an answer, /exit or Ctrl-D ends.\n")
    while True:
        try:
            prompt = _text(read_line("> "))
        except KeyboardInterrupt:
            write("\n")
            continue
        except UnicodeError:
            write(f"{_NO_TEXT}\n")
            continue
        except EOFError:
            write("\n")
            return
        if prompt == "/exit":
            return
        if not prompt:
            continue
        try:
            whole = conversation.ask(prompt, write)
            write("\n" if whole else "\n(stopped)\n")
        except CommandFailed as failure:
            write(f"\n{failure}\n")


def _answer_pipe(conversation: Conversation) -> None:
    try:
        prompt = _text(sys.stdin.read())
    except UnicodeError:
        raise CommandFailed(_NO_TEXT) from None
    if not prompt:
        raise CommandFailed("no prompt on stdin")
    if not conversation.ask(prompt, _write):
        raise KeyboardInterrupt
    _write("\n")


def _text(typed: str) -> str:
    """Raises UnicodeError for bytes that are no text, which some locales let through as lone surrogates."""
    prompt = typed.strip()
    prompt.encode()
    return prompt


@contextmanager
def _client(arguments: argparse.Namespace) -> Iterator["Gateway"]:
    """A client of the gateway at --url, else of the one that run.yaml describes, else of one inside this process."""
    if arguments.url is not None:
        with _remote(endpoint_at(arguments.url), os.environ.get(KEY_VARIABLE), trust_env=True) as client:
            yield client
        return
    config = load(arguments.config)
    there, key = endpoint(config), os.environ.get(KEY_VARIABLE) or client_key(config)
    # No proxy of the environment stands between this process and a gateway on its own machine.
    if _answers(there):
        with _remote(there, key, trust_env=False) as client:
            yield client
    else:
        with _embedded(arguments.config, key) as client:
            yield client


def _remote(there: Endpoint, key: str | None, *, trust_env: bool) -> "Gateway":
    from openai import DefaultHttpxClient

    from gateway.client import Gateway
    from gateway.client.transport import http

    way = None if there.socket_file is None else http.HTTPTransport(uds=there.socket_file)
    client = DefaultHttpxClient(
        trust_env=trust_env, timeout=_ANSWER_TIMEOUT_S, verify=there.trust or True, transport=way
    )
    return Gateway(base_url=there.url, api_key=key, max_retries=0, http_client=client)


@contextmanager
def _embedded(config_path: Path, key: str | None) -> Iterator["Gateway"]:
    if sys.stdin.isatty():
        print("gateway: no gateway is running; starting one in this process", file=sys.stderr)
    from gateway.client import Gateway

    with Path(os.devnull).open("wb") as log:
        try:
            client = Gateway.embedded(config_path, api_key=key, log=log, max_retries=0)
        except (ValueError, ImportError) as error:
            raise CommandFailed(f"{config_path}: {error}") from None
        with client:
            yield client


def _answers(there: Endpoint) -> bool:
    """Whether a gateway is alive there."""
    import httpx

    health = there.url.removesuffix("/v1") + "/healthz"
    transport = httpx.HTTPTransport(verify=there.trust or True, uds=there.socket_file)
    try:
        with httpx.Client(transport=transport, timeout=_PROBE_TIMEOUT_S) as client:
            return client.get(health).is_success
    except httpx.HTTPError:
        return False


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
