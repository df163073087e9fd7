"""What one region tells another: `POST /v1/forwarded`, and the headers of a forwarded request."""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

FORWARDED_BY: Final = "Duly-Forwarded-By"
"""The region that forwards a request. What has it is not forwarded again."""

FORWARDED_FOR: Final = "Duly-Forwarded-For"
"""Who sent the request there: the name of the token."""

FORWARDED_ROLE: Final = "Duly-Forwarded-Role"
"""The role of that token; the request may do no more than both tokens may."""

HANDED_MAX: Final = 1000
"""Tasks that one request may hand on."""


def _null() -> Raw:
    """A factory, since a schema cannot show a `Raw` as default."""
    return Raw(b"null")


class Handed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A submission as it came to the region that hands it on, and what it was given there."""

    id: UUID
    accepted_at: Annotated[datetime, Meta(tz=True)]
    submission: Raw
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    traceparent: str | None = None


class Handover(msgspec.Struct, forbid_unknown_fields=True):
    """Submissions for `region`, each of which stands for itself. Sent again, they are the same tasks."""

    region: str
    tasks: Annotated[list[Handed], Meta(max_length=HANDED_MAX)]


class Verdict(msgspec.Struct, omit_defaults=True):
    """What became of one: 201 or 200 with the task and its id, or 4xx with the problem."""

    status: int
    task_id: UUID | None = None
    due: datetime | None = None
    task: Raw = msgspec.field(default_factory=_null)
    problem: Raw = msgspec.field(default_factory=_null)


class HandoverAnswer(msgspec.Struct):
    """In the order of the submissions."""

    answers: list[Verdict]
