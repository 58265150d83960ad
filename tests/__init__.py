"""Whatever the environment says, tests keep modules compiled: the gateways that they start, a hundred or so, need not
compile them each time."""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
