"""How late the event loop is, on a real one."""

import time

from statistics_rig import FakeStatistics, node
from waiting import wait_for

from duly.actors.context import Options
from duly.actors.meters.statistics import StatisticsActor


async def test_an_event_loop_that_is_held_up_shows() -> None:
    firing = node(FakeStatistics(), "a", Options(pulse_s=0.02))
    delay = firing.context.meters.loop_delay
    async with firing.running(StatisticsActor):
        await wait_for(lambda: delay.count >= 3, 30, "it is measured")
        time.sleep(0.5)  # noqa: ASYNC251 - that is what is to show
        await wait_for(lambda: (delay.quantile_us(1.0) or 0) > 400_000, 30, "the delay shows")
