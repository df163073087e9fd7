"""The trail of a task in the log: at level debug each step of an attempt is a line with its fields."""

import logging

import pytest
from node_rig import RunningNode
from waiting import wait_for


async def test_each_step_names_task_token_and_slot(
    node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "duly")
    task = await node.running_task("a")

    def steps() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.__dict__.get("task_id") == str(task.id)
        ]

    await wait_for(lambda: "published" in steps(), 60, "it is published")
    done = {"token": task.version, "outcome": "completed"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", done)).status == 200
    await wait_for(lambda: steps()[2:], 60, "what became of it is said")
    assert steps() == ["claimed", "published", "recorded"]
    for record in caplog.records:
        if "task_id" in record.__dict__:
            assert record.__dict__["token"] == task.version
            assert record.__dict__["slot"] == task.slot


async def test_at_level_info_nothing_is_said_of_single_tasks(
    node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "duly")
    task = await node.running_task("a")
    done = {"token": task.version, "outcome": "completed"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/report", done)).status == 200
    assert not [record for record in caplog.records if "task_id" in record.__dict__]
