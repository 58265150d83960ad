"""`reliability:`: how long to wait, how often to try, when to leave a provider alone."""

from pydantic import Field

from gateway.config.sections.section import Amount, Positive, Section

__all__ = ["Breaker", "OwnTimeouts", "Reliability", "Retry", "Timeouts"]

_LONGEST_S = 86_400


class Timeouts(Section):
    """The limits of one request, in seconds; fractions are allowed."""

    connect_s: float = Field(default=5, gt=0, le=_LONGEST_S, description="Until the connection to the provider stands.")
    first_token_s: float = Field(default=60, gt=0, le=_LONGEST_S, description="Until the first output.")
    gap_s: float = Field(default=60, gt=0, le=_LONGEST_S, description="Between two outputs.")
    whole_s: float | None = Field(
        default=None,
        gt=0,
        le=_LONGEST_S,
        description="Until an answer that does not stream begins (default: half of total_s).",
    )
    total_s: float = Field(default=600, gt=0, le=_LONGEST_S, description="For the whole request, all tries together.")


class OwnTimeouts(Section):
    """The limits of one provider, in seconds, where they differ from those of all."""

    connect_s: float | None = Field(default=None, gt=0, le=_LONGEST_S, description="Until the connection stands.")
    first_token_s: float | None = Field(default=None, gt=0, le=_LONGEST_S, description="Until the first output.")
    gap_s: float | None = Field(default=None, gt=0, le=_LONGEST_S, description="Between two outputs.")
    whole_s: float | None = Field(
        default=None, gt=0, le=_LONGEST_S, description="Until an answer that does not stream begins."
    )


class Retry(Section):
    attempts: int = Field(default=2, ge=1, le=20, description="Tries of one target in all; 1: no second try.")
    max_wait_s: Amount = Field(default=20, le=_LONGEST_S, description="Longest wait between two tries, in seconds.")


class Breaker(Section):
    failures: Positive = Field(default=5, description="Failures in the window that open it.")
    window_s: float = Field(default=30, gt=0, le=_LONGEST_S, description="The window, in seconds.")
    open_s: float = Field(default=15, gt=0, le=_LONGEST_S, description="Seconds that it stays open.")


class Reliability(Section):
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Limits in seconds.")
    retry: Retry = Field(default_factory=Retry, description="Second tries, before the first output only.")
    breaker: Breaker = Field(default_factory=Breaker, description="Leaves a failing provider alone for a while.")
