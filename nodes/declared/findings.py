"""What a set of schedules comes to when it is played: counts, overlaps, herds, clock changes, an outage."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from duly.nodes.declared.playing import Outage, Played, Player, play
from duly.wheel.preview import clock_notes

_MINUTE: Final = timedelta(minutes=1)
_NAMES_MAX: Final = 5


class Counts(msgspec.Struct):
    """Of one schedule. Seconds."""

    runs: int = 0
    skipped: dict[str, int] = {}
    """By reason: `overrun` (the one before still ran), `misfire` (too late)."""
    overlaps: int = 0
    """Occurrences that came due while the one before still ran: skipped, or (overrun `queue`) run after it."""
    late: int = 0
    """Runs that began later than they were due."""
    longest_delay_s: float = 0.0
    first: datetime | None = None
    last: datetime | None = None
    """When the first and the last run began."""


class Herd(msgspec.Struct):
    """A minute, how many runs begin in it, and some of whose they are."""

    minute: datetime
    runs: int
    names: list[str]


class ClockChange(msgspec.Struct):
    """A change of the clock that a schedule feels, and what becomes of it."""

    name: str
    note: str


class Effect(msgspec.Struct):
    """What an outage does to one schedule under one policy. `declared`: it is that of the file."""

    name: str
    overrun: str
    misfire_grace: float | None
    declared: bool
    due: int
    """Occurrences that came due in it."""
    run_late: int
    skipped: int
    caught_up_at: datetime | None
    """When the last of those that were due in it began; None: none ran."""


class Findings(msgspec.Struct):
    """All of it. `until`: up to here it was played. Not `complete`: there was too much, and some is missing."""

    begin: datetime
    end: datetime
    until: datetime
    complete: bool
    runs: int
    skipped: int
    most_at_once: int
    most_at: datetime | None
    schedules: dict[str, Counts]
    herds: list[Herd]
    clock_changes: list[ClockChange]
    outage: list[Effect]


def find(
    players: Sequence[Player],
    begin: datetime,
    end: datetime,
    outage: Outage | None,
    *,
    top: int,
    limit: int,
) -> Findings:
    """Play all from `begin` to `end` (exclusive): at most `limit` occurrences, and for an outage as many once more."""
    found = Findings(
        begin, end, end, True, 0, 0, 0, None, {one.name: Counts() for one in players}, [], [], []
    )
    events = heapq.merge(*(play(one, end, outage) for one in players))
    crowd = _Crowd(top)
    before: dict[str, datetime] = {}
    number = 0
    for number, event in enumerate(islice(events, limit + 1)):
        if number == limit:
            found.complete, found.until = False, event.start
            break
        _count(found.schedules[event.name], event, before)
        if event.skipped is None:
            crowd.add(event)
            before[event.name] = event.end
    found.runs = sum(one.runs for one in found.schedules.values())
    found.skipped = sum(sum(one.skipped.values()) for one in found.schedules.values())
    found.most_at_once, found.most_at, found.herds = crowd.most, crowd.most_at, crowd.herds()
    found.clock_changes = list(_clock_changes(players, begin, found.until))
    if outage is not None:
        found.outage, whole = _effects(players, end, outage, limit)
        found.complete = found.complete and whole
    return found


def _count(counts: Counts, event: Played, before: dict[str, datetime]) -> None:
    if event.skipped is not None:
        counts.skipped[event.skipped] = counts.skipped.get(event.skipped, 0) + 1
        counts.overlaps += event.skipped == "overrun"
        return
    counts.runs += 1
    counts.first = counts.first or event.start
    counts.last = event.start
    if event.start > event.due:
        counts.late += 1
        counts.longest_delay_s = max(
            counts.longest_delay_s, (event.start - event.due).total_seconds()
        )
        counts.overlaps += event.due < before.get(event.name, event.due)


class _Crowd:
    """How many run at once, and begin in one minute; of runs in the order of their start."""

    def __init__(self, top: int) -> None:
        self.most = 0
        self.most_at: datetime | None = None
        self._top = top
        self._ends: list[datetime] = []
        self._minute: datetime | None = None
        self._names: Counter[str] = Counter()
        self._best: list[tuple[int, float, Herd]] = []

    def add(self, run: Played) -> None:
        while self._ends and self._ends[0] <= run.start:
            heapq.heappop(self._ends)
        heapq.heappush(self._ends, run.end)
        if len(self._ends) > self.most:
            self.most, self.most_at = len(self._ends), run.start
        minute = run.start.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._close()
            self._minute = minute
        self._names[run.name] += 1

    def herds(self) -> list[Herd]:
        """The minutes with most runs, the fullest first; no minute with one run."""
        self._close()
        return [herd for _, _, herd in sorted(self._best, key=lambda one: one[:2], reverse=True)]

    def _close(self) -> None:
        total = self._names.total()
        if self._minute is not None and total > 1:
            names = [name for name, _ in self._names.most_common(_NAMES_MAX)]
            herd = (total, -self._minute.timestamp(), Herd(self._minute, total, names))
            heapq.heappush(self._best, herd)
            if len(self._best) > self._top:
                heapq.heappop(self._best)
        self._names.clear()


def _clock_changes(
    players: Iterable[Player], begin: datetime, until: datetime
) -> Iterator[ClockChange]:
    for one in players:
        for note in clock_notes(one.plan, begin, until):
            yield ClockChange(one.name, note)


def _effects(
    players: Iterable[Player], end: datetime, outage: Outage, limit: int
) -> tuple[list[Effect], bool]:
    """Of each schedule that has something due in the outage, under each policy; False: there are more."""
    found: list[Effect] = []
    for one in players:
        for overrun in ("skip", "queue"):
            for grace in dict.fromkeys((None, one.misfire_grace)):
                policy = one._replace(overrun=overrun, misfire_grace=grace)
                effect, played = _effect(policy, end, outage, limit)
                limit -= played
                if limit <= 0:
                    return found, False
                effect.declared = (overrun, grace) == (one.overrun, one.misfire_grace)
                if effect.due:
                    found.append(effect)
    return found, True


def _effect(one: Player, end: datetime, outage: Outage, limit: int) -> tuple[Effect, int]:
    """And how many occurrences were played for it."""
    effect = Effect(one.name, one.overrun, one.misfire_grace, False, 0, 0, 0, None)
    played = 0
    for event in islice(play(one, end, outage), limit):
        played += 1
        if outage.begin <= event.due < outage.end:
            effect.due += 1
            if event.skipped is None:
                effect.run_late += event.start > event.due
                effect.caught_up_at = event.start
            else:
                effect.skipped += 1
        elif event.due >= outage.end:
            break
    return effect, played


def utc(at: datetime) -> str:
    """As people read it."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
