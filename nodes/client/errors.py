"""What a call may raise.

    DulyError
    ├── Unreachable              no answer: connection refused, broken off, or too slow
    └── ApiError                 the node answered with an error
        ├── Invalid              400, 415, 422
        ├── Unauthorized         401, 403
        ├── NotFound             404
        ├── Conflict             409
        ├── PreconditionFailed   412
        ├── TooLarge             413
        └── Unavailable          429, 503

and those of `duly.nodes.codec`.

A call that changes something and ends in Unreachable may have taken effect or not: its answer is
lost. `submit` is the exception, since it repeats itself under an idempotency key.
"""

# ruff: noqa: N818 - these names are statements and fixed by the contract

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from duly.nodes.errors import DulyError


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    field: str = ""
    message: str = ""


class Unreachable(DulyError):
    """The node could not be reached, or its answer was lost."""


class ApiError(DulyError):
    """The node answered with an error (`application/problem+json`)."""

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        errors: tuple[FieldError, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        """`problem` is the answer's body, `errors` the fields it names."""
        self.status: Final = status
        self.problem: Final = dict(problem)
        self.errors: Final = errors
        self.retry_after_s: Final = retry_after_s
        """Seconds after which to try again, if the node said so."""
        text = str(problem.get("detail") or problem.get("title") or "no details given")
        # A node's detail begins with the first of the fields already.
        unsaid = [error for error in errors if error.message not in text]
        fields = "".join(f"; {error.field}: {error.message}" for error in unsaid)
        super().__init__(f"{status} {text}{fields}")


class Invalid(ApiError):
    """The request is wrong; `errors` names the fields."""


class Unauthorized(ApiError):
    """The token is missing, unknown, or not allowed to do this."""


class NotFound(ApiError):
    """There is no such task."""


class Conflict(ApiError):
    """The task's state does not allow this, or its idempotency key was used for another body."""


class PreconditionFailed(ApiError):
    """The task has changed: its version is not the one in `if_match`."""


class TooLarge(ApiError):
    """The payload or the request is too long."""


class Unavailable(ApiError):
    """The node cannot do this now; `retry_after_s` says when to try again, if known."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    415: Invalid,
    422: Invalid,
    429: Unavailable,
    503: Unavailable,
}


def from_answer(status: int, body: bytes, retry_after_s: float | None) -> ApiError:
    """Return the error for an answer that is not a success, whatever its body looks like."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {"detail": body[:500].decode(errors="replace")}
    try:
        errors = msgspec.convert(problem.get("errors") or (), tuple[FieldError, ...], strict=False)
    except msgspec.ValidationError:
        errors = ()
    return _BY_STATUS.get(status, ApiError)(status, problem, errors, retry_after_s)
