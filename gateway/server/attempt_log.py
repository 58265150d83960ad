"""A log line for each attempt that a client does not see: those that failed, lost a race, or were a shadow's."""

from gateway.routing.attempt import Attempt, AttemptKind
from gateway.server.log import Log

__all__ = ["AttemptLog"]

_SEEN = (AttemptKind.FIRST, AttemptKind.AGAIN, AttemptKind.FAILOVER)


class AttemptLog:
    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def attempt_ended(self, attempt: Attempt) -> None:
        if attempt.kind in _SEEN and (attempt.error is None or attempt.first_output is not None):
            return  # the request's own line tells how its answer ended
        log, progress = self._log, attempt.progress
        fields: dict[str, object] = {
            "request_id": progress.request_id,
            "kind": attempt.kind,
            "outcome": attempt.outcome,
            "provider": attempt.target.provider.name,
            "upstream_model": log.outside(attempt.target.model),
        }
        if attempt.ended is not None:
            fields["duration_ms"] = round((attempt.ended - attempt.began) * 1000, 1)
        if attempt.first_output is not None:
            fields["ttft_ms"] = round((attempt.first_output - attempt.began) * 1000, 1)
        error = attempt.error
        if error is not None:
            fields["error"] = log.outside(error.code or error.type)
            if error.retry_after_s is not None:
                fields["retry_after_s"] = error.retry_after_s
        usage = attempt.usage
        if usage is not None:
            fields["prompt_tokens"], fields["completion_tokens"] = usage.prompt_tokens, usage.completion_tokens
        log.write("attempt", fields)
