"""What handlers log says which task it is about."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from worker_rig import FakeNode, running

from duly.nodes.logs import JsonFormatter
from duly.nodes.worker import Context, Worker

log = logging.getLogger("shop")


class Kept(logging.Handler):
    """Formats each line where it is logged, as a real handler does."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(JsonFormatter().format(record)))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def test_lines_of_async_and_plain_handlers_carry_their_task(
    node: FakeNode, kept: Kept
) -> None:
    worker = Worker(node.url, id="w1", concurrency=4)

    @worker.task("async")
    async def in_loop(ctx: Context) -> None:
        log.warning("from the loop")

    @worker.task("plain")
    def in_thread(ctx: Context) -> None:
        log.warning("from a thread")

    async with running(worker):
        ids = {await node.dispatch("async", token=3): "from the loop"}
        ids[await node.dispatch("plain", token=4)] = "from a thread"
        await node.wait_reports(2)
    log.warning("about no task")
    said = {line["task_id"]: line for line in kept.lines if "task_id" in line}
    assert {task_id: line["message"] for task_id, line in said.items()} == ids
    assert sorted(line["token"] for line in said.values()) == [3, 4]
    for line in said.values():
        assert (line["queue"], line["worker"]) == ("default", "w1")
    (other,) = (line for line in kept.lines if "task_id" not in line)
    assert "worker" not in other
