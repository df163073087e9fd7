"""Watches the store: each occurrence that the oracle names is run or skipped, once, in its order."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

from simulated.store import Row

from year.schedules import Drawn, us

_BROKEN_MAX = 50
_AT_ONCE = timedelta(milliseconds=1)
"""Records of one statement are a microsecond apart, and at most 1,000."""


class _Course:
    """Where one task stands."""

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self.next = 0
        """Index of the first expected instant of which nothing was recorded."""
        self.current: int | None = None
        """The occurrence of the last attempt that was recorded."""
        self.completed = False
        self.ran = 0
        """Expected occurrences that had an attempt."""
        self.token = -1
        self.decided: int | None = None
        """The occurrence of the last verdict."""
        self.undecided: int | None = None
        """The occurrence that had an attempt and has no verdict yet."""
        self.over: Row | None = None
        """The task, once its schedule is over."""


class Judge:
    """Told by the store of each commit; `broken` says in words what was wrong."""

    def __init__(self, drawn: Sequence[Drawn], now: Callable[[], datetime]) -> None:
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self._now = now
        self._courses = {one.id: _Course(one) for one in drawn}
        self._ended: dict[UUID, int] = {}
        self._asked: dict[UUID, list[list[int]]] = defaultdict(list)

    @contextmanager
    def asked_to_run(self, task_id: UUID) -> Iterator[None]:
        """Within the block somebody asks for a run at once: it may be one off the grid."""
        span = [us(self._now()), 1 << 62]
        self._asked[task_id].append(span)
        yield
        span[1] = us(self._now())

    def breaks(self, rule: str) -> None:
        """Note what is wrong; the first ones tell enough."""
        if len(self.broken) < _BROKEN_MAX:
            self.broken.append(rule)

    # Commits (the store's watcher)

    def task_changed(self, old: Row | None, new: Row | None) -> None:
        """A claim makes a new token, of a task that is due."""
        if new is None or old is None or old["status"] == new["status"]:
            return
        if new["status"] == "running":
            self.counts["claims"] += 1
            course = self._courses[new["id"]]
            if new["version"] <= course.token:
                self.breaks(f"token {new['version']} of {_of(course)} was handed out twice")
            course.token = new["version"]
            if max(old["next_run_at"], old["occurrence"]) > self._now():
                self.breaks(f"{_of(course)} was claimed before {old['next_run_at']}")
            if old["paused"]:
                self.breaks(f"{_of(course)} was claimed while it was paused")

    def recorded(self, run: Row) -> None:
        """An attempt, or a skip."""
        course, at = self._courses[run["task_id"]], us(run["occurrence"])
        self.counts[run["outcome"]] += 1
        if course.over is not None and run["recorded_at"] - course.over["finished_at"] > _AT_ONCE:
            self.breaks(f"{_of(course)}: {_said(run)} after the end of its schedule")
        self._judge_verdict(course, at, run)
        if run["outcome"] == "skipped":
            if not self._is_extra(course, at):
                self._advance(course, at, run)
            course.current = None
            return
        if run["token"] <= self._ended.get(run["task_id"], -1):
            self.breaks(f"{_of(course)}: {_said(run)} under a token that had ended")
        self._ended[run["task_id"]] = run["token"]
        if at != course.current:
            if not self._is_extra(course, at):
                self._advance(course, at, run)
                course.ran += 1
            course.current, course.completed = at, False
        elif course.completed:
            self.breaks(f"{_of(course)}: {_said(run)}, which was completed before")
        course.completed = run["outcome"] == "completed"

    def _judge_verdict(self, course: _Course, at: int, run: Row) -> None:
        """One to each occurrence, before anything is recorded of the next."""
        if course.decided == at:
            self.breaks(f"{_of(course)}: {_said(run)}, which has a verdict")
        if course.undecided not in (None, at):
            self.breaks(f"{_of(course)}: {_said(run)}, and {course.undecided} has no verdict")
        course.undecided = at if run["verdict"] is None else None
        if run["verdict"] is not None:
            course.decided = at

    def _is_extra(self, course: _Course, at: int) -> bool:
        """Off the grid, and somebody asked for it."""
        asked = self._asked[course.drawn.id]
        if _is_expected(course.drawn, at) or not any(begin <= at <= end for begin, end in asked):
            return False
        self.counts["extras"] += 1
        return True

    def _advance(self, course: _Course, at: int, run: Row) -> None:
        """The next expected instant, and no other."""
        expected = course.drawn.expected
        if course.next < len(expected) and expected[course.next] == at:
            course.next += 1
            return
        wanted = expected[course.next] if course.next < len(expected) else None
        self.breaks(f"{_of(course)}: {_said(run)}, expected {wanted} (not {at})")
        if wanted is not None and at > wanted:
            course.next = bisect_right(expected, at)

    def finished(self, row: Row) -> None:
        """The schedule is over; what is recorded with it comes after this."""
        self._courses[row["id"]].over = row
        self.counts["ended"] += 1

    def _check_over(self, course: _Course, row: Row) -> None:
        """With its last occurrence, or with its last run."""
        schedule = course.drawn.body["schedule"]
        by_runs = course.ran == schedule.get("max_runs")
        by_end = "end_at" in schedule and course.next == len(course.drawn.expected)
        if row["status"] != "completed" or not (by_runs or by_end):
            self.breaks(f"{_of(course)} ended {row['status']} after {course.ran} runs")

    def slot_taken(self, slot: int, epoch: int, owner: str | None) -> None:
        """Counted only."""
        self.counts["take-overs"] += owner is not None

    def claimed_under(self, slot: int, epoch: int, owner: str) -> None:
        """Of no interest here."""

    # At the end

    def owed(self, until: datetime) -> list[UUID]:
        """Tasks of which an occurrence up to `until` is neither run nor skipped yet."""
        return [
            task_id
            for task_id, course in self._courses.items()
            if course.over is None and course.next < bisect_right(course.drawn.expected, us(until))
        ]

    def check_end(self, until: datetime) -> None:
        """Everything up to `until` is accounted for."""
        for task_id in self.owed(until):
            course = self._courses[task_id]
            at = course.drawn.expected[course.next]
            self.breaks(f"{_of(course)}: nothing is recorded of {at}")
        for course in self._courses.values():
            if course.over is not None:
                self._check_over(course, course.over)
                if course.undecided is not None:
                    self.breaks(f"{_of(course)}: {course.undecided} has no verdict")
            self.counts["occurrences"] += bisect_right(course.drawn.expected, us(until))


def _is_expected(drawn: Drawn, at: int) -> bool:
    place = bisect_left(drawn.expected, at)
    return place < len(drawn.expected) and drawn.expected[place] == at


def _of(course: _Course) -> str:
    return f"{course.drawn.id} {course.drawn.body['schedule']}"


def _said(run: Row) -> str:
    return (
        f"{run['outcome']} of {run['occurrence']} (token {run['token']}, attempt {run['attempt']})"
    )
