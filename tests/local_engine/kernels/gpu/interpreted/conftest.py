"""These tests run where Triton interprets: it reads TRITON_INTERPRET when a kernel is defined. See test_interpreted."""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
