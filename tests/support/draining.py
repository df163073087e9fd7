"""One worker that runs everything that is due, and what it was given, in order."""

from node_rig import RunningNode
from waiting import wait_for

from duly.storage.conveyor import Conveyor, Entry, GroupMissingError


async def drain(node: RunningNode, url: str, at_once: int = 500, of: str = "true") -> list[Entry]:
    """Run tasks as a worker would; what was taken, in order, each attempt once.

    Until none is left of those that meet the condition `of` on rows of `tasks`.
    An entry may come twice under one token, if the answer to its publication was lost.
    """
    conveyor, taken = Conveyor(url, "w"), dict[tuple[str, int], Entry]()
    try:

        async def all_recorded() -> bool:
            await conveyor.beat(b'{"concurrency": %d}' % at_once)
            try:
                found = await conveyor.read(["default"], at_once, 50)
            except GroupMissingError:
                await conveyor.create_group("default")
                return False
            entries = [one for one in found if isinstance(one, Entry)]
            for one in entries:
                taken.setdefault((one.id, one.token), one)
            if entries:
                await conveyor.report("default", [_report(one) for one in entries])
                return False
            return await node.count(f"tasks where {of}") == 0

        await wait_for(all_recorded, 240, "every task is recorded")
    finally:
        await conveyor.close()
    return list(taken.values())


def _report(entry: Entry) -> tuple[bytes, list[str]]:
    said = ["id", entry.id, "token", str(entry.token), "outcome", "completed", "worker", "w"]
    return entry.entry_id, [*said]
