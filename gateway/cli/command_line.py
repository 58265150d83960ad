"""Arguments -> a command, and its exit status: 0 done, 1 failed (said on stderr), 2 wrong use."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.cli import bench, chat, check, init, keys, migrate, models, print_config, pull, serve, usage
from gateway.cli.configuration import add_config
from gateway.cli.failure import CommandFailed
from gateway.version import VERSION

__all__ = ["main"]

_COMMANDS = {
    "serve": serve,
    "init": init,
    "check": check,
    "models": models,
    "pull": pull,
    "chat": chat,
    "config": print_config,
    "bench": bench,
    "keys": keys,
    "usage": usage,
    "migrate": migrate,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (None: of this process) and gives its exit status."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed the help
        return end.code if isinstance(end.code, int) else 2
    run: Callable[[argparse.Namespace], int] = arguments.run
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # it lives as long as the process
    try:
        status = run(arguments)
        sys.stdout.flush()
    except CommandFailed as failure:
        for line in str(failure).splitlines():
            print(f"gateway: {line}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ngateway: interrupted", file=sys.stderr)
        return 1
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what it still holds goes nowhere
        if not isinstance(error, BrokenPipeError):  # whoever read the output has left, as `| head` does
            print(f"gateway: {error.strerror}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="One endpoint that lets any client speak its own LLM protocol to any model.",
        epilog="Without a command it serves. Example: gateway --config run.yaml",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gateway {VERSION}")
    add_config(parser, default=Path("run.yaml"))
    parser.set_defaults(run=serve.run)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in _COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=command.SUMMARY[0].upper() + command.SUMMARY[1:] + ".",
            epilog=f"Example: {command.EXAMPLE}",
            allow_abbrev=False,
        )
        add_config(sub, default=argparse.SUPPRESS)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser
