"""The command line. Importing it is cheap: what a command needs is imported when it runs."""

from gateway.cli.command_line import main

__all__ = ["main"]
