"""An attempt completed in the user's own transaction: it has completed exactly if that commits."""

from duly.nodes.codec import Codec, CodecError
from duly.nodes.transactions.drivers import async_driver, blocking_driver
from duly.nodes.worker.outcomes import (
    AlreadyDone,
    Fail,
    Superseded,
    TooLong,
    over,
    result_json,
)
from duly.storage.queries import statements


async def complete(
    connection: object,
    task_id: str,
    token: int,
    result: object,
    worker: str,
    codec: Codec | None,
) -> None:
    """See `Context.complete_in`."""
    driver = async_driver(connection)
    values = _values(task_id, token, _json(result, codec), worker, commits_each=driver.commits_each)
    try:
        await driver.first_row(statements()["complete_in"], values)
    except Exception as error:
        _raise_if_over(error, codec)
        raise


def complete_sync(
    connection: object,
    task_id: str,
    token: int,
    result: object,
    worker: str,
    codec: Codec | None,
) -> None:
    """See `Context.complete_in_sync`."""
    driver = blocking_driver(connection)
    values = _values(task_id, token, _json(result, codec), worker, commits_each=driver.commits_each)
    try:
        driver.first_row(statements()["complete_in"], values)
    except Exception as error:
        _raise_if_over(error, codec)
        raise


def _raise_if_over(error: Exception, codec: Codec | None) -> None:
    what = over(error, codec)
    if isinstance(what, AlreadyDone | Superseded | CodecError):
        raise what from error


def _values(
    task_id: str, token: int, result: bytes, worker: str, *, commits_each: bool
) -> tuple[str, str, str, str]:
    if commits_each:
        raise RuntimeError(
            "no transaction is open on this connection: nothing would be one with it"
        )
    return task_id, str(token), result.decode(), worker


def _json(result: object, codec: Codec | None) -> bytes:
    try:
        return result_json(result, codec)
    except TooLong as error:
        raise Fail(str(error)) from None
    except Exception as error:
        raise Fail(f"the result cannot be stored: {error}") from error
