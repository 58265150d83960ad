"""`gateway bench`: how fast a running gateway, or any server of the same API, answers."""

import argparse
import math

from gateway.cli.failure import CommandFailed

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "measure a running gateway, or any server that speaks OpenAI's chat API"
EXAMPLE = "gateway bench http://127.0.0.1:8080/v1 --model fast --clients 32 --stream"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="base URL, as http://127.0.0.1:8080 or .../v1, or unix:FILE (default: that of the configuration)",
    )
    parser.add_argument("--model", required=True, help="the model to ask")
    parser.add_argument("--clients", type=_positive, default=16, help="requests at the same time (default: 16)")
    parser.add_argument("--seconds", type=_seconds, default=10.0, help="seconds to run (default: 10)")
    parser.add_argument("--requests", type=_positive, help="requests to send at most")
    parser.add_argument("--stream", action="store_true", help="ask for streams")
    parser.add_argument("--prompt", default="Write a sentence about the sea.", help="prompt to send")
    parser.add_argument("--max-tokens", type=_positive, default=128, help="longest answer in tokens (default: 128)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    import asyncio
    import json
    import os

    from gateway.cli.bench_load import Load, measure, report
    from gateway.cli.configuration import client_key, endpoint, endpoint_at, load

    key = os.environ.get("LLM_GATEWAY_API_KEY")
    if arguments.url is None:
        config = load(arguments.config)
        there, key = endpoint(config), key or client_key(config)
    else:
        there = endpoint_at(arguments.url)
    wanted = Load(
        url=there.url + "/chat/completions",
        trust=there.trust,
        socket_file=there.socket_file,
        key=key,
        model=arguments.model,
        prompt=arguments.prompt,
        max_tokens=arguments.max_tokens,
        stream=arguments.stream,
        clients=arguments.clients,
        seconds=arguments.seconds,
        requests=arguments.requests,
    )
    result = asyncio.run(measure(wanted))
    print(json.dumps(result, indent=1) if arguments.json else report(result))
    if not result["requests"]:
        raise CommandFailed(f"no request was answered well; the first said: {result['first_error']}")
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number
