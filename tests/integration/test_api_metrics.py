"""What a scrape of a running node tells."""

import re
from pathlib import Path

from hand_worker import HandWorker
from node_rig import RunningNode
from scraping import exposed, scrape
from waiting import wait_for

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


async def test_it_tells_what_works_and_what_was_done(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await node.client.submit("t")
        await hand.report(await hand.take())

        async def recorded() -> bool:
            return (await scrape(node))["duly_recorded_total", ""] == 1

        await wait_for(recorded, 30, "the outcome shows")
    seen = await scrape(node)
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


async def test_the_documentation_lists_each_of_them(regional: RunningNode, redis_url: str) -> None:
    documented = set(re.findall(r"^\| `(duly_\w+)", OPERATIONS.read_text(), re.MULTILINE))
    assert await exposed(regional, redis_url) == documented


async def test_histograms_say_what_was_measured(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await node.client.submit("t")
        await hand.report(await hand.take(), started=1_790_000_000_000, finished=1_790_000_000_500)

        async def recorded() -> bool:
            return (await scrape(node)).get(("duly_attempts_total", "completed,t")) == 1

        await wait_for(recorded, 30, "the outcome shows")
    seen = await scrape(node)
    assert seen["duly_attempt_duration_seconds_bucket", "0.262144,t"] == 0
    assert seen["duly_attempt_duration_seconds_bucket", "1.048576,t"] == 1
    assert seen["duly_attempt_duration_seconds_bucket", "+Inf,t"] == 1
    assert seen["duly_attempt_duration_seconds_count", "t"] == 1
    assert seen["duly_attempt_duration_seconds_sum", "t"] == 0.5
    for stage in ("ticked", "claimed", "published", "started"):
        assert seen["duly_firing_lag_seconds_count", stage] == 1
    assert seen["duly_retries_exhausted_total", "t"] == 0
    assert seen["duly_lease_changes_total", "taken"] == 256
    assert seen["duly_slot_epoch", ""] >= 1
    assert seen["duly_statement_seconds_count", "claim"] >= 1
    assert seen["duly_statement_failures_total", "claim"] == 0
    assert seen["duly_prefetch_seconds_count", "sweep"] >= 1
    assert abs(seen["duly_clock_offset_seconds", ""]) < 60
    assert seen["duly_event_loop_delay_seconds_count", ""] >= 1
