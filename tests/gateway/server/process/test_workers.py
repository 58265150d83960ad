"""The parent of several processes: what it says of those that end."""

import subprocess
import sys

BROKEN = """\
import sys
from gateway.server.process.workers import Workers

def serve(siblings, listens):
    raise RuntimeError("what went wrong")

sys.exit(Workers(2, lambda: None).run(serve))
"""


def test_a_process_that_ends_by_a_fault_says_which() -> None:
    ended = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "RuntimeError: what went wrong" in ended.stderr
