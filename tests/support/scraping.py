"""What a scrape of a running node tells."""

import re

from hand_worker import HandWorker
from node_rig import RunningNode
from prometheus_client.parser import text_string_to_metric_families as read_text
from waiting import wait_for

_PARTS = re.compile(r"_(bucket|sum|count)$")


async def scrape(node: RunningNode) -> dict[tuple[str, str], float]:
    """Sample and the values of its labels, in the order of their names, to the value."""
    async with node.http.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        text = await answer.text()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in read_text(text)
        for sample in family.samples
    }


async def exposed(node: RunningNode, redis_url: str) -> set[str]:
    """The names of all metrics of a node that has had a task, those of histograms once."""
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await node.client.submit("t")
        await hand.report(await hand.take(), started=1_790_000_000_000, finished=1_790_000_000_500)

        async def recorded() -> bool:
            seen = await scrape(node)
            return ("duly_attempts_total", "completed,t") in seen and "duly_tasks" in {
                name for name, _ in seen
            }

        await node.client.submit("later", delay=3600)
        await wait_for(recorded, 60, "the outcome shows")
    return {_PARTS.sub("", name) for name, _ in await scrape(node)}
