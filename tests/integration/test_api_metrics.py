"""What a scrape of a running node tells."""

import re
from pathlib import Path

from hand_worker import HandWorker
from node_rig import RunningNode
from prometheus_client.parser import text_string_to_metric_families as read_text
from waiting import wait_for

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


async def _scrape(node: RunningNode) -> dict[tuple[str, str], float]:
    async with node.http.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        text = await answer.text()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in read_text(text)
        for sample in family.samples
    }


async def test_it_tells_what_works_and_what_was_done(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await node.client.submit("t")
        await hand.report(await hand.take())

        async def recorded() -> bool:
            return (await _scrape(node))["duly_recorded_total", ""] == 1

        await wait_for(recorded, 30, "the outcome shows")
    seen = await _scrape(node)
    assert {part: value for (name, part), value in seen.items() if name == "duly_up"} == {
        "postgres": 1, "redis": 1, "slots": 1, "queues": 1,
    }  # fmt: skip
    assert seen["duly_owned_slots", ""] == 256
    assert seen["duly_claimed_total", ""] == 1
    assert ("duly_mailbox_depth", "recorder") in seen


async def test_openmetrics_for_those_who_ask(node: RunningNode) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with node.http.get("/metrics", headers=accept) as answer:
        assert answer.content_type == "application/openmetrics-text"
        text = await answer.text()
    assert "# TYPE duly_up gauge" in text
    assert text.endswith("# EOF\n")


async def test_the_documentation_lists_each_of_them(node: RunningNode) -> None:
    documented = set(re.findall(r"^\| `(duly_\w+)", OPERATIONS.read_text(), re.MULTILINE))
    assert {name for name, _ in await _scrape(node)} == documented
