"""The figures of a run, from its evidence."""

import bisect
import re
from pathlib import Path
from typing import NamedTuple

from chaos_lab.evidence import FAULT_LOG, Evidence
from chaos_lab.journal import read

_WINDOW_S = 1.0
_NUMBER = re.compile(r"[ -]\d+")


class Lags(NamedTuple):
    """From due to the handler's first start, in seconds."""

    tasks: int
    p50: float
    p99: float
    largest: float


class Recovery(NamedTuple):
    """Of a kind of fault: how late the tasks were that came due in the second after one began."""

    fault: str
    """What was done, and to what kind of thing."""
    measured: int
    median: float
    largest: float


def first_lags(evidence: Evidence) -> list[tuple[float, float]]:
    """(due, lag) of every task that was accepted before it was due and never changed, by due time."""
    moved = {answer.id for answer in evidence.changes}
    found = []
    for task_id, starts in evidence.starts.items():
        task = evidence.tasks.get(task_id)
        if task is None or task_id in moved or not task.accepted:
            continue
        if task.answered is not None and task.answered < task.due:
            found.append((task.due, min(start.at for start in starts) - task.due))
    return sorted(found)


def lags(evidence: Evidence) -> Lags:
    """How late tasks were, faults and all."""
    ordered = sorted(lag for _, lag in first_lags(evidence)) or [0.0]
    return Lags(len(ordered), _share(ordered, 0.5), _share(ordered, 0.99), ordered[-1])


def recoveries(evidence: Evidence, folder: Path) -> list[Recovery]:
    """By kind of fault. Where faults overlap, each counts the lateness that any of them caused."""
    known = first_lags(evidence)
    dues = [due for due, _ in known]
    worst: dict[str, list[float]] = {}
    for fault in read(folder / FAULT_LOG):
        begin = bisect.bisect_left(dues, fault["at"])
        end = bisect.bisect_left(dues, fault["at"] + _WINDOW_S)
        if begin < end:
            late = max(lag for _, lag in known[begin:end])
            worst.setdefault(_NUMBER.sub("", fault["name"]), []).append(late)
    return [
        Recovery(fault, len(each), sorted(each)[len(each) // 2], max(each))
        for fault, each in sorted(worst.items())
    ]


def repeats(evidence: Evidence) -> int:
    """Attempts that began twice under one token: allowed when Redis lost its data in between."""
    return sum(
        len(starts) - len({start.token for start in starts}) for starts in evidence.starts.values()
    )


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
