"""Which fault comes when: all of it follows from the seed."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

CALM_S: Final = 5.0
"""Without a fault at the start, so that there is something to compare with."""

_PAUSES_S: Final = (0.5, 1, 2, 4, 8, 15, 30)
_SHORT_S: Final = (0.5, 1, 2, 4, 8)


class Fault(NamedTuple):
    """Something bad, from `at` on for `lasts` seconds of the run, then healed."""

    at: float
    kind: str
    target: int
    lasts: float
    amount: float = 0.0
    """Seconds: of a delay, or of a step of the clock."""


class Sort(NamedTuple):
    """How a kind of fault is drawn."""

    weight: float
    targets: int
    lasts: tuple[float, ...]
    amounts: tuple[float, ...] = (0.0,)
    shared: str = ""
    """Faults of the same name here never overlap: they touch the same server."""


SORTS: Final[dict[str, Sort]] = {
    "kill node": Sort(10, 3, _SHORT_S),
    "stop node": Sort(5, 3, (0, 1, 3)),
    "pause node": Sort(8, 3, _PAUSES_S),
    "step clock": Sort(6, 3, (2, 5, 10), (3600.0, -3600.0)),
    "kill worker": Sort(10, 4, _SHORT_S),
    "pause worker": Sort(8, 4, _PAUSES_S),
    "kill redis": Sort(5, 1, (0, 1, 4), shared="redis"),
    "wipe redis": Sort(4, 1, (0, 1, 4), shared="redis"),
    "pause redis": Sort(5, 1, _SHORT_S, shared="redis"),
    "kill lease server": Sort(6, 3, _SHORT_S),
    "pause lease server": Sort(5, 3, _PAUSES_S),
    "kill postgres": Sort(4, 1, (0, 1, 3), shared="postgres"),
    "pause postgres": Sort(4, 1, (0.5, 1, 2, 4), shared="postgres"),
    "pause standby": Sort(3, 1, (0.5, 1, 2, 4), shared="postgres"),
    "failover": Sort(4, 1, (0,), shared="postgres"),
    "cut": Sort(12, 22, _SHORT_S),
    "delay": Sort(10, 22, (2, 4, 8), (0.02, 0.1, 0.5)),
    "half-open": Sort(8, 22, _SHORT_S),
}
"""Every kind of fault. The last three are of links, of which there are 22."""


def plan(
    seed: int, seconds: float, every_s: float, kinds: Sequence[str] = tuple(SORTS)
) -> list[Fault]:
    """The faults of a run of `seconds`, one about every `every_s`, by their beginning.

    Some overlap; no two of them touch the same thing at once. All are healed when the run ends.
    Raises KeyError for a kind that is none.
    """
    chance = random.Random(seed)
    weights = [SORTS[kind].weight for kind in kinds]
    busy: dict[tuple[str, int], float] = {}
    faults: list[Fault] = []
    at = CALM_S
    while at < seconds:
        kind = chance.choices(list(kinds), weights)[0]
        sort = SORTS[kind]
        fault = Fault(
            round(at, 3),
            kind,
            chance.randrange(sort.targets),
            float(chance.choice(sort.lasts)),
            chance.choice(sort.amounts),
        )
        touched = resource(fault)
        if busy.get(touched, 0.0) <= at and at + fault.lasts <= seconds:
            faults.append(fault)
            busy[touched] = at + fault.lasts + _REST_S[sort.shared]
        at += chance.uniform(0.5, 1.5) * every_s
    return faults


_REST_S: Final = {"": 2.0, "redis": 4.0, "postgres": 10.0}
"""How long something is left alone after it was healed."""


def resource(fault: Fault) -> tuple[str, int]:
    """What a fault touches: never two at once."""
    sort = SORTS[fault.kind]
    what = sort.shared or (fault.kind.split(" ", 1)[1] if " " in fault.kind else "link")
    return ("node" if what == "clock" else what, fault.target)
