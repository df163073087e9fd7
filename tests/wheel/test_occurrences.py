"""Occurrences: whatever happens to a task, each is run or recorded skipped exactly once."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.wheel import occurrences
from duly.wheel.occurrences import Course, Step
from duly.wheel.schedule import Plan, load

ID = UUID(int=7)
T0 = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def plan(**fields: object) -> Plan:
    return load(json.dumps(fields), T0)


def course(plan: Plan, at: int, overrun: str = "skip", **changes: object) -> Course:
    """It waits for the occurrence number `at` (1 is the first) of a plan with `every`."""
    assert plan.every is not None
    one = T0 + at * plan.every
    fresh = Course(
        ID, plan, overrun, None, one, one, None if overrun == "queue" else one + plan.every
    )
    return fresh._replace(**changes)  # type: ignore[arg-type]


MINUTELY = plan(every=60)


class TestEnd:
    """What follows an occurrence that has run."""

    def test_in_time_the_next_one_follows(self) -> None:
        for overrun in ("skip", "queue"):
            step = occurrences.ended(course(MINUTELY, 1, overrun), T0 + s(61))
            assert (step.occurrence, step.due, step.skipped) == (T0 + s(120), T0 + s(120), ())

    def test_skip_drops_what_came_due_meanwhile(self) -> None:
        step = occurrences.ended(course(MINUTELY, 1), T0 + s(245))
        assert [one.occurrence for one in step.skipped] == [T0 + s(n) for n in (120, 180, 240)]
        assert {one.reason for one in step.skipped} == {"overrun"}
        assert (step.occurrence, step.following) == (T0 + s(300), T0 + s(360))

    def test_queue_runs_the_very_next_one(self) -> None:
        step = occurrences.ended(course(MINUTELY, 1, "queue"), T0 + s(245))
        assert (step.occurrence, step.due) == (T0 + s(120), T0 + s(120))
        assert (step.skipped, step.following) == ((), None)

    def test_it_ends_after_its_last_run(self) -> None:
        last = plan(every=60, max_runs=2)
        assert occurrences.ended(course(last, 1), T0 + s(61)).occurrence == T0 + s(120)
        over = occurrences.ended(course(last, 2, runs_done=1), T0 + s(121))
        assert (over.occurrence, over.due) == (None, None)

    def test_it_ends_at_its_end_and_what_is_due_there_still_runs(self) -> None:
        to = plan(every=60, end_at=(T0 + s(120)).isoformat())
        step = occurrences.ended(course(to, 1), T0 + s(61))
        assert (step.occurrence, step.following) == (T0 + s(120), None)
        assert occurrences.ended(course(to, 2), T0 + s(121)).occurrence is None

    def test_an_extra_run_does_not_count(self) -> None:
        last = plan(every=60, max_runs=1)
        extra = course(last, 1, occurrence=T0 + s(30), next_run_at=T0 + s(30))
        assert occurrences.ended(extra, T0 + s(31)).occurrence == T0 + s(60)


class TestLate:
    """What becomes of occurrences that could not run in time."""

    def test_skip_runs_the_latest(self) -> None:
        step = occurrences.late(course(MINUTELY, 1), T0 + s(245))
        assert step is not None
        assert [one.occurrence for one in step.skipped] == [T0 + s(n) for n in (60, 120, 180)]
        assert {one.reason for one in step.skipped} == {"misfire"}
        assert (step.occurrence, step.following, step.unfinished) == (
            T0 + s(240), T0 + s(300), False,
        )  # fmt: skip

    def test_queue_runs_each(self) -> None:
        assert occurrences.late(course(MINUTELY, 1, "queue"), T0 + s(245)) is None

    @pytest.mark.parametrize("overrun", ["skip", "queue"])
    def test_later_than_its_grace_it_is_skipped(self, overrun: str) -> None:
        late = course(MINUTELY, 1, overrun, misfire_grace=90.0)
        step = occurrences.late(late, T0 + s(290))
        assert step is not None
        if overrun == "skip":
            assert (step.occurrence, len(step.skipped)) == (T0 + s(240), 3)
            later = occurrences.late(late._replace(misfire_grace=20.0), T0 + s(290))
            assert later is not None
            assert (later.occurrence, len(later.skipped)) == (T0 + s(300), 4)
        else:
            assert [one.occurrence for one in step.skipped] == [
                T0 + s(60),
                T0 + s(120),
                T0 + s(180),
            ]
            assert (step.occurrence, step.due) == (T0 + s(240), T0 + s(240))

    def test_what_has_begun_is_not_skipped(self) -> None:
        begun = course(MINUTELY, 1, begun=True, following=None, misfire_grace=1.0)
        assert occurrences.late(begun, T0 + s(900)) is None

    def test_c14_ninety_days_of_minutes_are_skipped_bite_by_bite(self) -> None:
        at, bites, skipped = course(MINUTELY, 1), 0, 0
        now = T0 + timedelta(days=90) + s(30)
        while (step := occurrences.late(at, now)) is not None:
            assert len(step.skipped) <= occurrences.SKIPS_MAX
            assert step.occurrence is not None
            at = moved(at, step)
            bites, skipped = bites + 1, skipped + len(step.skipped)
        assert (skipped, bites) == (129_599, 130)
        assert (at.occurrence, at.following) == (T0 + s(129_600 * 60), T0 + s(129_601 * 60))


class TestPauseAndRunNow:
    """Pauses, runs at once, and other schedules."""

    def test_what_came_due_in_a_pause_is_skipped(self) -> None:
        step = occurrences.resumed(course(MINUTELY, 1), T0 + s(130))
        assert step is not None
        assert [(one.occurrence, one.reason) for one in step.skipped] == [
            (T0 + s(60), "paused"), (T0 + s(120), "paused"),
        ]  # fmt: skip
        assert step.occurrence == T0 + s(180)

    def test_a_short_pause_and_a_begun_occurrence_change_nothing(self) -> None:
        assert occurrences.resumed(course(MINUTELY, 1), T0 + s(59)) is None
        begun = course(MINUTELY, 1, begun=True, following=None)
        assert occurrences.resumed(begun, T0 + s(500)) is None

    def test_run_now_is_an_extra_one_and_leaves_the_grid(self) -> None:
        step = occurrences.run_now(course(MINUTELY, 2, done_until=T0 + s(60)), T0 + s(70))
        assert step is not None
        assert (step.occurrence, step.due, step.following) == (T0 + s(70), T0 + s(70), None)
        extra = moved(course(MINUTELY, 2, done_until=T0 + s(60)), step)
        assert occurrences.ended(extra, T0 + s(71)).occurrence == T0 + s(120)
        after = occurrences.ended(extra, T0 + s(200))
        assert [one.occurrence for one in after.skipped] == [T0 + s(120), T0 + s(180)]

    def test_an_extra_one_is_never_known_as_one_of_the_grid(self) -> None:
        step = occurrences.run_now(course(MINUTELY, 2), T0 + s(60))
        assert step is not None
        assert step.occurrence == T0 + s(60) + timedelta(microseconds=1)

    def test_run_now_of_what_waits_for_a_retry_moves_it(self) -> None:
        begun = course(MINUTELY, 1, begun=True, following=None, next_run_at=T0 + s(900))
        step = occurrences.run_now(begun, T0 + s(100))
        assert step is not None
        assert (step.occurrence, step.due) == (T0 + s(60), T0 + s(100))
        assert occurrences.run_now(course(MINUTELY, 1), T0 + s(61)) is None

    def test_another_schedule_goes_on_after_now(self) -> None:
        hourly = plan(every=3600)
        owed = course(MINUTELY, 1, "queue")
        step = occurrences.replaced(owed, hourly, "queue", T0 + s(190))
        assert step is not None
        assert [(one.occurrence, one.reason) for one in step.skipped] == [
            (T0 + s(n), "replaced") for n in (60, 120, 180)
        ]
        assert (step.occurrence, step.unfinished) == (T0 + s(3600), False)

    def test_under_another_schedule_what_has_begun_goes_on(self) -> None:
        hourly = plan(every=3600)
        for done in (None, T0 + s(30)):
            begun = course(MINUTELY, 1, begun=True, following=None, done_until=done)
            step = occurrences.replaced(begun, hourly, "skip", T0 + s(190))
            assert (step.occurrence, step.due) == (begun.occurrence, begun.next_run_at)
            assert [(one.occurrence, one.reason) for one in step.skipped] == [
                (T0 + s(120), "replaced"), (T0 + s(180), "replaced")
            ]  # fmt: skip
            assert (step.done_until, step.unfinished) == (T0 + s(190), False)
            bite = occurrences.replaced(begun, hourly, "skip", T0 + s(190), limit=1)
            assert (bite.done_until, bite.unfinished) == (T0 + s(120), True)
            later = begun._replace(plan=plan(every=7), done_until=step.done_until)
            assert occurrences.ended(later, T0 + s(191)).occurrence == T0 + s(196)

    def test_it_counts_under_another_schedule_as_it_did_before(self) -> None:
        minute, other, both = MINUTELY, plan(every=50), plan(every=20)
        for old, new, change in ((minute, other, 1), (other, minute, 1), (minute, both, 0)):
            assert occurrences.recounted(course(old, 1), new) == change
        assert occurrences.recounted(course(minute, 1)._replace(plan=other), minute) == -1

    def test_jitter_decides_when_it_is_due_and_not_which_it_is(self) -> None:
        jittery = plan(every=60, jitter=50)
        step = occurrences.first(ID, jittery, "skip")
        assert step.occurrence == T0 + s(60)
        assert step.due == jittery.due(ID, T0 + s(60)) != T0 + s(60)
        assert step.following == jittery.due(ID, T0 + s(120))
        # Between its nominal time and its due time it has not come due.
        nominal, due = T0 + s(120), jittery.due(ID, T0 + s(120))
        between = nominal + (due - nominal) / 2
        assert occurrences.ended(course(jittery, 1), between).occurrence == nominal


def moved(course: Course, step: Step) -> Course:
    """Where the task waits after a step."""
    assert step.occurrence is not None
    done = course.done_until if step.done_until is None else step.done_until
    return course._replace(
        occurrence=step.occurrence, next_run_at=step.due, following=step.following,
        done_until=done, begun=False, skip_until=step.skip_until, skip_reason=step.skip_reason,
    )  # fmt: skip


@dataclass
class Life:
    """A task as the store keeps it, and what it was told to do; `limit` of every decision is small."""

    plan: Plan
    overrun: str
    grace: float | None
    limit: int
    now: datetime = T0
    seen: list[datetime] = field(default_factory=list)
    """Occurrences that have run or were skipped."""
    extras: set[datetime] = field(default_factory=set)
    paused: bool = False
    running: bool = False
    over: bool = False

    def __post_init__(self) -> None:
        first = occurrences.first(ID, self.plan, self.overrun)
        assert first.occurrence is not None
        self.course = Course(
            ID, self.plan, self.overrun, self.grace, first.occurrence, first.due, first.following
        )

    def go(self, step: Step | None) -> None:
        if step is None:
            return
        assert len(step.skipped) <= self.limit
        self.seen += [one.occurrence for one in step.skipped]
        if step.occurrence is None:
            self.over = True
        else:
            self.course = moved(self.course, step)

    def wait(self, seconds: float) -> None:
        self.now += s(seconds)

    def try_to_claim(self) -> None:
        """As the claim and, if it is refused, the catch-up do."""
        while not (self.over or self.running or self.paused):
            at, grace = self.course.next_run_at, self.course.misfire_grace
            assert at is not None
            if at > self.now:
                return
            late = grace is not None and not self.course.begun and self.now - at > s(grace)
            behind = self.course.following is not None and self.course.following <= self.now
            if late or behind:
                step = occurrences.late(self.course, self.now, self.limit)
                assert step is not None, "neither claimed nor moved"
                self.go(step)
            else:
                self.running = True

    def end(self, seconds: float, *, retry: bool) -> None:
        self.wait(seconds)
        if not self.running:
            return
        self.running = False
        if retry:
            self.course = self.course._replace(
                begun=True, next_run_at=self.now + s(7), following=None, skip_until=None
            )
            return
        ran = self.course.occurrence
        self.seen.append(ran)
        runs = self.course.runs_done + occurrences.counts(self.course)
        self.go(occurrences.ended(self.course, self.now, self.limit))
        self.course = self.course._replace(runs_done=runs)

    def pause(self, seconds: float) -> None:
        self.paused = True
        self.wait(seconds)
        self.paused = False
        if not (self.running or self.over):
            self.go(occurrences.resumed(self.course, self.now, self.limit))

    def run_now(self) -> None:
        if self.running or self.over:
            return
        step = occurrences.run_now(self.course, self.now)
        if step is not None and step.occurrence not in (None, self.course.occurrence):
            assert step.occurrence is not None
            self.extras.add(step.occurrence)
        self.go(step)

    def move(self, seconds: float) -> None:
        """A patch of `run_at`."""
        if not (self.running or self.over) and self.course.skip_until is None:
            self.course = self.course._replace(next_run_at=self.now + s(seconds), following=None)

    def other_policy(self) -> None:
        overrun = "queue" if self.course.overrun == "skip" else "skip"
        if self.running or self.over:
            self.course = self.course._replace(overrun=overrun)
        elif self.course.skip_until is None:
            step = occurrences.requeued(self.course, overrun)
            self.course = self.course._replace(overrun=overrun, following=step.following)

    def settle(self) -> None:
        """Let what is due come to its end, without any more trouble."""
        for _ in range(10_000):
            if self.over:
                return
            at = self.course.next_run_at
            if not self.running and at is not None and at > self.now and not self.course.begun:
                return
            if not self.running and at is not None:
                self.now = max(self.now, at)
            self.try_to_claim()
            self.end(0.0, retry=False)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 400)),
        st.tuples(st.just("claim")),
        st.tuples(st.just("done"), st.floats(0, 200)),
        st.tuples(st.just("retry"), st.floats(0, 200)),
        st.tuples(st.just("pause"), st.floats(0, 300)),
        st.tuples(st.just("run_now")),
        st.tuples(st.just("move"), st.floats(-50, 300)),
        st.tuples(st.just("policy")),
    ),
    max_size=40,
)
PLANS = st.sampled_from([
    plan(every=60), plan(every=7.5), plan(every=60, jitter=60), plan(every=60, max_runs=3),
    plan(every=60, end_at=(T0 + s(600)).isoformat()), plan(cron="*/2 * * * *", timezone="UTC"),
    plan(cron="30 2 * * *", timezone="Europe/Berlin", jitter=30), plan(every=10, jitter=10),
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    PLANS, st.sampled_from(["skip", "queue"]), st.sampled_from([None, 0.0, 45.0, 500.0]),
    st.sampled_from([1, 2, 5, 1000]), ACTS,
)  # fmt: skip
def test_each_occurrence_is_run_or_skipped_exactly_once(
    plan: Plan, overrun: str, grace: float | None, limit: int, acts: list[tuple[str, float]]
) -> None:
    life = Life(plan, overrun, grace, limit)
    for act, *args in acts:
        life.wait(0.001)  # nobody asks twice within a microsecond
        if act == "claim":
            life.try_to_claim()
        elif act in ("done", "retry"):
            life.end(*args, retry=act == "retry")
        else:
            names = {"wait": life.wait, "pause": life.pause, "run_now": life.run_now,
                     "move": life.move, "policy": life.other_policy}  # fmt: skip
            names[act](*args)  # type: ignore[operator]
    life.settle()
    assert len(set(life.seen)) == len(life.seen), "an occurrence came twice"
    on_grid = sorted(set(life.seen) - life.extras)
    expected: list[datetime] = []
    one = plan.first()
    while one is not None and len(expected) < len(on_grid):
        expected.append(one)
        one = plan.after(one)
    assert on_grid == expected, "an occurrence was left out"
    if life.over:
        assert one is None or life.course.runs_done >= (plan.max_runs or 1e9)
    elif life.course.occurrence not in life.extras:
        assert life.course.occurrence == one
