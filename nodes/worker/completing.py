"""An attempt completed in the user's own transaction: it has completed exactly if that commits."""

from duly.nodes import exact_json
from duly.nodes.transactions.drivers import async_driver, blocking_driver
from duly.nodes.worker.outcomes import RESULT_BYTES_MAX, AlreadyDone, Fail, Superseded, over
from duly.storage.queries import statements


async def complete(
    connection: object, task_id: str, token: int, result: object, worker: str
) -> None:
    """See `Context.complete_in`."""
    driver = async_driver(connection)
    values = _values(task_id, token, result, worker, commits_each=driver.commits_each)
    try:
        await driver.first_row(statements()["complete_in"], values)
    except Exception as error:
        _raise_if_over(error)
        raise


def complete_sync(
    connection: object, task_id: str, token: int, result: object, worker: str
) -> None:
    """See `Context.complete_in_sync`."""
    driver = blocking_driver(connection)
    values = _values(task_id, token, result, worker, commits_each=driver.commits_each)
    try:
        driver.first_row(statements()["complete_in"], values)
    except Exception as error:
        _raise_if_over(error)
        raise


def _raise_if_over(error: Exception) -> None:
    what = over(error)
    if isinstance(what, AlreadyDone | Superseded):
        raise what from error


def _values(
    task_id: str, token: int, result: object, worker: str, *, commits_each: bool
) -> tuple[str, str, str, str]:
    if commits_each:
        raise RuntimeError(
            "no transaction is open on this connection: nothing would be one with it"
        )
    try:
        body = exact_json.encode(result)
    except Exception as error:
        raise Fail(f"the result cannot be stored: {error}") from error
    if len(body) > RESULT_BYTES_MAX:
        raise Fail(f"the result has {len(body)} bytes, more than {RESULT_BYTES_MAX}")
    return task_id, str(token), body.decode(), worker
