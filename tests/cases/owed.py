"""What this version does not do yet: the check's name, and what owes it.

These checks run and must fail (strictly): one that starts to pass has to leave the list.
"""

from collections.abc import Mapping

__all__ = ["OWED"]

OWED: Mapping[str, str] = {
    "TS-01": "dialects",
    "TS-03": "messages front",
    "TS-04": "local text",
    "TS-05": "dialects",
    "FR-03": "guided decoding",
    "FR-04": "guided decoding",
    "TC-01": "dialects",
    "OL-01": "dialects",
    "ST-01/reasoning": "local text",
    "RS-01": "local text",
    "SSE-03/messages": "messages front",
    "SSE-03/responses": "responses",
    "CL-01/background": "responses",
    "SEC-02/messages": "messages front",
    "SEC-02/responses": "responses",
    "MS-01/anthropic": "dialects",
    "MS-02/anthropic": "dialects",
    "MS-02/gemini": "dialects",
    "MS-03": "dialects",
    "CT-01/anthropic": "dialects",
    "PM-01/anthropic": "dialects",
    "PM-01/gemini": "dialects",
    "PM-01/ollama": "dialects",
    "PM-01/responses": "dialects",
    "JS-01": "dialects",
    "SEC-04": "dialects",
    "LO-01": "LoRA",
    "SEC-03": "image fetching",
    "US-02": "dialects",
    "FR-01": "dialects",
    "FR-02": "dialects",
}
