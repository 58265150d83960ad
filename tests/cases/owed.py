"""What this version does not do yet: the check's name, and what owes it.

These checks run and must fail (strictly): one that starts to pass has to leave the list.
"""

from collections.abc import Mapping

__all__ = ["OWED"]

OWED: Mapping[str, str] = {}
