"""Computes the times of cron tasks anew after an update of the zone data.

What waits was computed with the data of the node that stored it. A node that has newer data moves what
waits in its slots; one with older data leaves it alone, or the two would undo each other's work.
"""

import logging
from datetime import datetime
from uuid import UUID

from duly.actors import courses, wakes
from duly.actors.context import Context
from duly.storage import courses as stored
from duly.storage.courses import CourseRow, Move, Place
from duly.storage.tasks import Waiting
from duly.wheel import occurrences, zones
from duly.wheel.durations import from_us
from duly.wheel.schedule_fields import ScheduleError

log = logging.getLogger("duly.upkeep")

_PAGE = 200


async def rezone(context: Context) -> int:
    """Answers how many tasks have got another time. Raises `StoreUnavailableError`."""
    moved = 0
    seen: set[UUID] = set()
    while ids := set(await stored.zone_outdated(context.db, context.node_id, zones.VERSION, _PAGE)):
        if ids <= seen:
            break  # they change all the time, or cannot be computed: the next time
        seen |= ids
        now = from_us(context.clock.now_us())
        moves: list[Move] = []
        changed = set()
        for row in (await stored.courses(context.db, sorted(ids))).values():
            place = _rezoned(row, now)
            if place is None:
                continue
            if place.occurrence != row.occurrence:
                changed.add(row.id)
            moves.append(Move(row.id, row.version, place))
        done = await stored.advance(context.db, moves, now) if moves else []
        moved += len(changed.intersection(one.id for one in done))
        await wakes.wake(context, [Waiting(o.due, o.slot_owner) for o in done if o.due])
    if seen:
        log.info("zone data %s: looked at %d tasks, moved %d", zones.VERSION, len(seen), moved)
    return moved


def _rezoned(row: CourseRow, now: datetime) -> Place | None:
    if row.status != "pending" or row.schedule is None:
        return None
    try:
        course = courses.course(row)
    except ScheduleError as error:
        log.error(
            "task %s: the zone data %s do not fit its schedule: %s", row.id, zones.VERSION, error
        )
        return None
    step = occurrences.rezoned(course, now)
    stays = courses.stay(row)._replace(zone_data=zones.VERSION)
    return stays if step is None else courses.place(course.plan, step)
