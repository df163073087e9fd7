"""What is told of, or set in, all stores together: counts, queues, readiness, reports of workers."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from duly.nodes.api.health import HealthHandlers, Part
from duly.nodes.api.problems import FieldError, invalid
from duly.nodes.api.queues import QueueHandlers
from duly.nodes.api.stores.routing import Stores
from duly.nodes.api.task_counts import Counted, TaskCounts
from duly.nodes.api.workers import WorkerHandlers
from duly.storage.audit import Note
from duly.storage.claims import Ended
from duly.storage.counting import Counts, Depth
from duly.storage.queues import Control, ControlChange


class StoresTaskCounts(TaskCounts):
    """Counts of all stores; of one that is away, what was counted last."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._each = [TaskCounts(context) for context in stores.contexts]

    async def get(self) -> Counted | None:
        """As of one store; an estimate while one of them has never been counted."""
        answers = await asyncio.gather(*(one.get() for one in self._each))
        found = [one for one in answers if one is not None]
        if not found:
            return None
        queues: dict[str, Depth] = {}
        finished: Counter[str] = Counter()
        for counts in (one.counts for one in found):
            finished.update(counts.finished)
            for queue, depth in counts.queues.items():
                known = queues.get(queue, (0, 0, 0, 0))
                queues[queue] = Depth(*(a + b for a, b in zip(known, depth, strict=True)))
        exact = len(found) == len(answers) and all(one.counts.exact for one in found)
        return Counted(Counts(queues, dict(finished), exact), min(one.at for one in found))


class StoresQueueHandlers(QueueHandlers):
    """What is set of queues is kept in the first store; nodes copy it to the others (`actors/controls`)."""

    async def _control(
        self, name: str, wanted: ControlChange, now: datetime, noted: Note
    ) -> Control:
        if wanted.max_in_flight is not None:
            message = (
                "is not offered where there are several stores, which each know their own tasks"
            )
            raise invalid(FieldError("max_in_flight", message))
        return await super()._control(name, wanted, now, noted)


class StoresWorkerHandlers(WorkerHandlers):
    """Of one of several stores; many reports at once are of any."""

    def __init__(self, stores: Stores, at: int) -> None:
        super().__init__(stores.contexts[at])
        self._stores = stores
        self._each = [WorkerHandlers(context) for context in stores.contexts]

    async def _record(self, ended: list[Ended]) -> list[bool]:
        by_store: dict[int, list[int]] = {}
        for place, one in enumerate(ended):
            by_store.setdefault(self._stores.of(one.id), []).append(place)
        recorded = [False] * len(ended)

        async def ask(store: int, places: Sequence[int]) -> None:
            answers = await self._each[store]._record([ended[place] for place in places])
            for place, answer in zip(places, answers, strict=True):
                recorded[place] = answer

        await asyncio.gather(*(ask(store, places) for store, places in by_store.items()))
        return recorded


class StoresHealthHandlers(HealthHandlers):
    """Ready as long as one of the stores is; each is a part of its own."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores
        self._each = [HealthHandlers(context) for context in stores.contexts]

    async def stores(self) -> dict[str, Part]:
        """Each store, by its number."""
        found = await asyncio.gather(*(one.postgres() for one in self._each))
        names = self._stores.layout.names
        return {
            f"store {at}": part
            if part.ok
            else Part(False, f"{names[at]}: {part.detail}", part.failing)
            for at, part in enumerate(found)
        }

    async def postgres(self) -> Part:
        """Whether any store takes writes."""
        parts = await self.stores()
        away = [name for name, part in parts.items() if not part.ok]
        detail = f"{', '.join(away)} away" if away else None
        return Part(len(away) < len(parts), detail)

    async def redis(self) -> tuple[Part, Part | None]:
        """As the first that complains."""
        found = [await one.redis() for one in self._each]
        part = next((part for part, _ in found if not part.ok), found[0][0])
        primaries = [one for _, one in found if one is not None]
        return part, next((one for one in primaries if not one.ok), next(iter(primaries), None))

    def slots(self) -> Part:
        """Those of all stores."""
        parts = [one.slots() for one in self._each]
        owned = sum(context.vitals.owned_slots for context in self._stores.contexts)
        ok = any(part.ok for part in parts)
        return Part(ok, f"owns {owned}" if ok else parts[0].detail)

    def queues(self) -> Part:
        """As the first that complains."""
        parts = [one.queues() for one in self._each]
        return next((part for part in parts if not part.ok), parts[0])
