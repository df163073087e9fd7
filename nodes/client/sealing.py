"""What a codec does to the fields of submissions, and to those of answers."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from duly.nodes.client.models import BulkPreview, Occurrence, RejectedReport, Run, Task, Verdict
from duly.nodes.codec import Codec
from duly.nodes.codec.envelope import opened, sealed, shown_error

T = TypeVar("T")

_FOLLOW_UPS = ("on_success", "on_failure")


def seal(codec: Codec | None, body: dict[str, Any]) -> dict[str, Any]:
    """A submission with its payloads encoded, those of its follow-ups too, also where none is given.

    Raises CodecError, TypeError or ValueError.
    """
    if codec is None:
        return body
    made = {**body, "payload": sealed(codec, body.get("payload"))}
    for name in _FOLLOW_UPS:
        if made.get(name) is not None:
            made[name] = seal(codec, made[name])
    return made


def seal_change(codec: Codec | None, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a change, its payload encoded if it has one."""
    if codec is None or "payload" not in body:
        return body
    return {**body, "payload": sealed(codec, body["payload"])}


def each(codec: Codec | None, look: Callable[[Codec, T], T]) -> Callable[[T], T] | None:
    """What is made of each item of a list; None: nothing."""
    return None if codec is None else partial(look, codec)


def task(codec: Codec, it: Task) -> Task:
    """A task with all of it in clear."""
    return msgspec.structs.replace(
        it,
        payload=opened(codec, it.payload),
        result=opened(codec, it.result),
        error=shown_error(codec, it.error),
        on_success=_follow_up(codec, it.on_success),
        on_failure=_follow_up(codec, it.on_failure),
        parent=_parent(codec, it.parent),
    )


def run(codec: Codec, it: Run) -> Run:
    """A run with its result or error in clear."""
    return msgspec.structs.replace(
        it, result=opened(codec, it.result), error=shown_error(codec, it.error)
    )


def occurrence(codec: Codec, it: Occurrence) -> Occurrence:
    """A due time with all that it tells of its attempts in clear."""
    attempts = tuple(run(codec, one) for one in it.attempts)
    return msgspec.structs.replace(
        it, attempts=attempts, rejected=tuple(_rejected(codec, one) for one in it.rejected)
    )


def verdict(codec: Codec, it: Verdict) -> Verdict:
    """A verdict with its error in clear."""
    return msgspec.structs.replace(it, error=shown_error(codec, it.error))


def preview(codec: Codec, it: BulkPreview) -> BulkPreview:
    """A preview with its tasks in clear."""
    return msgspec.structs.replace(it, sample=tuple(task(codec, one) for one in it.sample))


def _rejected(codec: Codec, it: RejectedReport) -> RejectedReport:
    return msgspec.structs.replace(it, error=shown_error(codec, it.error))


def _follow_up(codec: Codec, it: dict[str, Any] | None) -> dict[str, Any] | None:
    if it is None:
        return None
    made = {**it, "payload": opened(codec, it.get("payload"))}
    for name in _FOLLOW_UPS:
        if name in made:
            made[name] = _follow_up(codec, made[name])
    return made


def _parent(codec: Codec, it: dict[str, Any] | None) -> dict[str, Any] | None:
    if it is None:
        return None
    result, error = opened(codec, it.get("result")), shown_error(codec, it.get("error"))
    return {**it, "result": result, "error": error}
