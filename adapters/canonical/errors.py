"""The one error tree. Status, type string and "may be retried" are facts of the class; no code reads a message.

    GatewayError
    ├── InvalidRequest 400            the client's request is wrong
    │   ├── UnsupportedParameter      this target cannot express a field of it
    │   ├── ContextOverflow           prompt (and answer) do not fit the model's window
    │   ├── ContentRefused            an upstream's filter refused the prompt
    │   ├── BodyTooLarge 413
    │   ├── TargetTooLong 414         the path and query of the request
    │   ├── WrongMediaType 415
    │   ├── Unprocessable 422
    │   └── HeadTooLarge 431          the headers of the request
    ├── AuthenticationFailed 401      the client's own key
    ├── PermissionDenied 403
    ├── NotFound 404
    │   └── ModelNotFound
    ├── MethodNotAllowed 405
    ├── Conflict 409
    ├── RateLimited 429               the client's own limits
    │   └── InsufficientQuota         the client's own budget is spent
    ├── QueueFull 429                 the local engine's waiting queue is full
    ├── ClientClosed 499              the client left before the answer was whole
    ├── InternalError 500             a fault of the gateway
    ├── NotReady 503                  the model is loading, failed, or the gateway drains
    └── UpstreamError 502             the provider failed
        ├── UpstreamAuth              it refused the gateway's key
        ├── UpstreamQuota             its wallet or spend cap is exhausted
        ├── UpstreamUnreachable       no connection, or reset before an answer
        │   └── StaleConnection       a kept one that had ended
        ├── BadUpstreamResponse       not the protocol: HTML, broken JSON, an empty 200
        ├── StreamTruncated           the stream ended without a finish marker
        ├── UpstreamRateLimited 429
        ├── UpstreamConflict 409
        ├── UpstreamInternal 500
        ├── UpstreamOverloaded 503
        └── UpstreamTimeout 504

Edges render these into a dialect's error envelope; providers and the engine's provider raise them.
"""

from collections.abc import Callable
from typing import ClassVar, Self

__all__ = [
    "AuthenticationFailed",
    "BadUpstreamResponse",
    "BodyTooLarge",
    "ClientClosed",
    "Conflict",
    "ContentRefused",
    "ContextOverflow",
    "GatewayError",
    "HeadTooLarge",
    "InsufficientQuota",
    "InternalError",
    "InvalidRequest",
    "MethodNotAllowed",
    "ModelNotFound",
    "NotFound",
    "NotReady",
    "PermissionDenied",
    "QueueFull",
    "RateLimited",
    "StaleConnection",
    "StreamTruncated",
    "TargetTooLong",
    "Unprocessable",
    "UnsupportedParameter",
    "UpstreamAuth",
    "UpstreamConflict",
    "UpstreamError",
    "UpstreamInternal",
    "UpstreamOverloaded",
    "UpstreamQuota",
    "UpstreamRateLimited",
    "UpstreamTimeout",
    "UpstreamUnreachable",
    "WrongMediaType",
]


class GatewayError(Exception):
    """What a client is told when a request fails.

    `param` is the path of the offending field in the client's body (`messages[2].content`), `code` a stable word that
    programs may test, `retry_after_s` a hint in seconds. `should_retry` overrides what the client's SDK would decide
    from the status; None leaves it to the SDK.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False
    """The same target may succeed if asked again."""
    fails_over: ClassVar[bool] = False
    """Another target may succeed."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry

    @classmethod
    def at(cls, param: str, why: str, *, code: str | None = None) -> Self:
        """An error about the field at this path; its message begins with the path."""
        return cls(f"{param}: {why}", param=param, code=code)

    def told(self, redact: Callable[[str], str]) -> Self:
        """This error as a client may be told of it: `redact` hides secrets, which an upstream may echo in any text."""
        self.message = redact(self.message)
        self.code = self.code and redact(self.code)
        self.param = self.param and redact(self.param)
        self.forget_frames()
        return self

    def forget_frames(self) -> None:
        """Lets go of the frames that this error and its causes were raised through.

        They hold the request and whole bodies, and often what keeps the error: a cycle, which would wait with all of
        them for the garbage collector.
        """
        error: BaseException | None = self
        while error is not None and error.__traceback__ is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


class InvalidRequest(GatewayError):
    status = 400
    type = "invalid_request_error"


class UnsupportedParameter(InvalidRequest):
    default_code = "unsupported_parameter"


class ContextOverflow(InvalidRequest):
    default_code = "context_length_exceeded"


class ContentRefused(InvalidRequest):
    default_code = "content_filter"


class BodyTooLarge(InvalidRequest):
    status = 413
    default_code = "body_too_large"


class TargetTooLong(InvalidRequest):
    status = 414
    default_code = "target_too_long"


class HeadTooLarge(InvalidRequest):
    status = 431
    default_code = "head_too_large"


class WrongMediaType(InvalidRequest):
    status = 415
    default_code = "unsupported_media_type"


class Unprocessable(InvalidRequest):
    status = 422


class AuthenticationFailed(GatewayError):
    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class PermissionDenied(GatewayError):
    status = 403
    type = "permission_error"


class NotFound(GatewayError):
    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class ModelNotFound(NotFound):
    default_code = "model_not_found"
    fails_over = True


class MethodNotAllowed(GatewayError):
    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class Conflict(GatewayError):
    status = 409
    type = "conflict_error"


class RateLimited(GatewayError):
    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class InsufficientQuota(RateLimited):
    type = "insufficient_quota"
    default_code = "insufficient_quota"


class QueueFull(GatewayError):
    status = 429
    type = "rate_limit_error"
    default_code = "queue_full"
    retryable = True
    fails_over = True


class ClientClosed(GatewayError):
    status = 499
    type = "client_closed_request"
    default_code = "client_closed_request"


class InternalError(GatewayError):
    pass


class NotReady(GatewayError):
    status = 503
    type = "server_error"
    default_code = "not_ready"
    fails_over = True


class UpstreamError(GatewayError):
    """`upstream_status` is the HTTP status that the provider sent, None where none came."""

    status = 502
    type = "upstream_error"
    default_code = "upstream_error"
    retryable = True
    fails_over = True

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
        upstream_status: int | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code, retry_after_s=retry_after_s, should_retry=should_retry)
        self.upstream_status = upstream_status


class UpstreamAuth(UpstreamError):
    default_code = "upstream_auth"
    retryable = False


class UpstreamQuota(UpstreamError):
    default_code = "upstream_quota"
    retryable = False


class UpstreamUnreachable(UpstreamError):
    default_code = "upstream_unreachable"


class StaleConnection(UpstreamUnreachable):
    """A kept connection ended unanswered as it was used again: its peer had most likely just closed it. It says nothing
    about the upstream."""


class BadUpstreamResponse(UpstreamError):
    default_code = "bad_upstream_response"


class StreamTruncated(UpstreamError):
    default_code = "stream_truncated"


class UpstreamRateLimited(UpstreamError):
    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class UpstreamConflict(UpstreamError):
    status = 409


class UpstreamInternal(UpstreamError):
    status = 500


class UpstreamOverloaded(UpstreamError):
    status = 503
    default_code = "overloaded"


class UpstreamTimeout(UpstreamError):
    status = 504
    default_code = "upstream_timeout"
