"""Tasks submitted in the user's own transaction: there is one exactly if that commits."""

from collections.abc import Mapping
from typing import Any, Unpack
from uuid import UUID

from duly.nodes.client import options, sealing
from duly.nodes.client.options import TaskOptions
from duly.nodes.client.tracing import submitting
from duly.nodes.codec import Codec
from duly.nodes.transactions.drivers import async_driver, blocking_driver
from duly.storage.queries import statements


async def submit_in(
    connection: object,
    type: str,  # noqa: A002 - the name that users see
    payload: Any = None,
    *,
    codec: Codec | None = None,
    **task_options: Unpack[TaskOptions],
) -> UUID:
    """Submit a task within the open transaction of `connection`; return its id.

    There is a task exactly if the transaction commits; until then nobody sees it. One that is due by then runs
    at once. `connection`: of asyncpg (also out of its pool), an `AsyncConnection` of psycopg 3, or an
    `AsyncSession` or `AsyncConnection` of SQLAlchemy, to the database in which Duly keeps its tasks. Its user
    needs the right to execute `duly.submit`. Options are those of `Client.submit` but `schedule` and `name`.
    `codec`: encodes the payload, as that of a `Client`.

    Raises TypeError for another kind of connection, TypeError or ValueError for a wrong option, and what the
    driver raises for an error of PostgreSQL: SQLSTATE 22023 for a wrong field, 23505 if the id is taken or the
    idempotency key was used with other values. The transaction then is to be rolled back.
    """
    driver = async_driver(connection)
    with submitting(type) as headers:
        values = _values(type, payload, codec, task_options, headers)
        row = await driver.first_row(statements()["submit_in"], values)
    assert row is not None
    return UUID(row[0])


def submit_in_sync(
    connection: object,
    type: str,  # noqa: A002 - the name that users see
    payload: Any = None,
    *,
    codec: Codec | None = None,
    **task_options: Unpack[TaskOptions],
) -> UUID:
    """`submit_in` for plain code: a `Connection` of psycopg 3, or a `Session` or `Connection` of SQLAlchemy."""
    driver = blocking_driver(connection)
    with submitting(type) as headers:
        values = _values(type, payload, codec, task_options, headers)
        row = driver.first_row(statements()["submit_in"], values)
    assert row is not None
    return UUID(row[0])


def _values(
    task_type: str,
    payload: Any,
    codec: Codec | None,
    task_options: TaskOptions,
    headers: Mapping[str, str],
) -> tuple[str, str, str | None, str]:
    """What `duly.submit` takes, as text."""
    given: dict[str, Any] = {**task_options, "type": task_type, "payload": payload}
    body = sealing.seal(codec, options.submission(given))
    run_at = body.pop("run_at", None)
    rest = {k: v for k, v in body.items() if k not in ("type", "payload")} | dict(headers)
    return (
        task_type,
        options.encode(body["payload"]).decode(),
        run_at,
        options.encode(rest).decode(),
    )
