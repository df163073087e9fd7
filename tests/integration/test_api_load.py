"""GET /v1/load: the due load of the next hours."""

from datetime import timedelta

from node_rig import RunningNode

from duly.wheel.durations import from_us, parse_time


async def test_the_due_load(node: RunningNode) -> None:
    now = from_us(node.context.clock.now_us())
    for queue, hours in (("a", 2), ("a", 2), ("b", 20)):
        await node.client.submit("t", queue=queue, run_at=now + timedelta(hours=hours))
    answer = await node.call("GET", "/v1/load")
    assert answer.status == 200
    body = answer.body
    since = parse_time(body["from"])
    assert (since.second, since.microsecond) == (0, 0)
    assert timedelta(0) <= from_us(node.context.clock.now_us()) - since < timedelta(minutes=5)
    assert (body["step_s"], body["minutes"], body["sampled"]) == (60, 1440, 1.0)
    due = {one["name"]: one["counts"] for one in body["series"]}
    assert due.keys() == {"a", "b"}
    at = (now + timedelta(hours=2) - since) // timedelta(minutes=1)
    assert due["a"] == [2 if minute == at else 0 for minute in range(1440)]
    assert sum(due["b"]) == 1

    answer = await node.call("GET", "/v1/load?by=type&hours=3")
    assert answer.body["minutes"] == 180
    assert [(one["name"], sum(one["counts"])) for one in answer.body["series"]] == [("t", 2)]


async def test_wrong_parameters(node: RunningNode) -> None:
    for query in ("by=x", "by=", "hours=0", "hours=25", "hours=x", "minutes=5"):
        answer = await node.call("GET", f"/v1/load?{query}")
        assert (answer.status, answer.fields) == (422, [query.partition("=")[0]]), query
