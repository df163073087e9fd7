"""What workers do (nodes/worker/reader.py, runner.py, starts.py, reporter.py), and the effect."""

from node_steps import Steps, commit
from protocol_state import COMPLETED, DEAD, FAILED, RUNNING, UP, Event, Report, Rules, State, Worker

IDLE = Worker()


def with_worker(state: State, at: int, worker: Worker) -> State:
    """The state with one worker replaced."""
    return state._replace(workers=(*state.workers[:at], worker, *state.workers[at + 1 :]))


def without_entry(state: State, entry: int) -> State:
    """XACK and XDEL."""
    left = tuple(one for one in state.redis.entries if one.id != entry)
    return state._replace(redis=state.redis._replace(entries=left))


def distinct(state: State) -> list[tuple[int, Worker]]:
    """The workers and their places; of two that are alike and hold nothing only the first.

    What the second would do leads to the same states, but for the workers' names.
    """
    holders = {entry.holder for entry in state.redis.entries}
    free = [worker if at not in holders else None for at, worker in enumerate(state.workers)]
    return [
        (at, worker)
        for at, worker in enumerate(state.workers)
        if at in holders or worker not in free[:at]
    ]


def read(state: State, at: int) -> Steps:
    """XREADGROUP: the oldest entry that nobody was given; or one of its own that it does not know."""
    entries = state.redis.entries
    for place, entry in enumerate(entries):
        if entry.holder in (-1, at):
            given = (*entries[:place], entry._replace(holder=at), *entries[place + 1 :])
            after = state._replace(redis=state.redis._replace(entries=given))
            worker = Worker(phase="read", entry=entry.id, token=entry.token)
            yield Event("read", at, entry.token), with_worker(after, at, worker)
            return


def begin(state: State, at: int, rules: Rules) -> Steps:
    """HGET inflight: not the own token, so drop it; else start it, or ask to."""
    worker = state.workers[at]
    idle = IDLE._replace(life=worker.life)
    if rules.begin_inflight and state.redis.inflight != worker.token:
        dropped = without_entry(state, worker.entry)
        yield Event("drop", at, worker.token), with_worker(dropped, at, idle)
    elif rules.on_lost_fail and rules.confirm:
        new = state.seen.ids + 1
        asking = worker._replace(phase="confirming", start_id=new)
        after = state._replace(seen=state.seen._replace(ids=new))
        yield Event("begin", at, worker.token), with_worker(after, at, asking)
    else:
        yield start(state, at)


def start(state: State, at: int) -> tuple[Event, State]:
    """The handler starts."""
    worker = state.workers[at]
    started = (*state.seen.started, worker.token)
    seen = state.seen._replace(started=tuple(sorted(set(started))))
    running = with_worker(state._replace(seen=seen), at, worker._replace(phase="running"))
    return Event("start", at, worker.token), running


def confirm(state: State, at: int, rules: Rules) -> Steps:
    """The token's one start, granted by PostgreSQL; its answer may be lost, and it is asked again."""
    worker, store = state.workers[at], state.store
    wanted = store.status == RUNNING and store.version == worker.token
    free = store.start_id in (0, worker.start_id) or not rules.confirm_start_id
    if not (wanted and free):
        dropped = without_entry(state, worker.entry)
        idle = IDLE._replace(life=worker.life)
        yield Event("refused", at, worker.token), with_worker(dropped, at, idle)
        return
    granted = state
    if store.start_id != worker.start_id:
        granted = commit(state, store._replace(start_id=worker.start_id))
    yield start(granted, at)
    if state.faults.doubt:
        faults = state.faults._replace(doubt=state.faults.doubt - 1)
        yield Event("grant without answer", at, worker.token), granted._replace(faults=faults)


def run(state: State, at: int, rules: Rules) -> Steps:
    """The handler applies its effect, or fails before it."""
    worker, seen = state.workers[at], state.seen
    done = with_worker(state, at, worker._replace(phase="done", outcome=COMPLETED))
    if state.done and rules.guard:
        yield Event("effect refused", at, worker.token), done
    else:
        seen = seen._replace(effects=seen.effects + 1)
        yield Event("effect", at, worker.token), done._replace(seen=seen, done=True)
    if state.faults.failure:
        faults = state.faults._replace(failure=state.faults.failure - 1)
        failed = with_worker(state, at, worker._replace(phase="done", outcome=FAILED))
        yield Event("fail", at, worker.token), failed._replace(faults=faults)


def report(state: State, at: int, rules: Rules) -> Steps:
    """XADD, XACK and XDEL in one step (or, without that safeguard, in two)."""
    worker = state.workers[at]
    if worker.phase == "done" and not rules.report_with_ack:
        acked = without_entry(state, worker.entry)
        reporting = worker._replace(phase="reporting")
        yield Event("ack", at, worker.token), with_worker(acked, at, reporting)
        return
    after = without_entry(state, worker.entry)
    new = state.seen.ids + 1
    reports = (*after.redis.reports, Report(new, worker.token, worker.outcome))
    redis = after.redis._replace(reports=reports, newest=new)
    after = after._replace(redis=redis, seen=state.seen._replace(ids=new))
    idle = IDLE._replace(life=worker.life)
    yield Event("report", at, worker.token, worker.outcome), with_worker(after, at, idle)


def worker_steps(state: State, rules: Rules) -> Steps:
    """Every step that some worker can take. One that fell silent may go on before it is heard."""
    for at, worker in distinct(state):
        if worker.life == DEAD:
            continue
        if worker.life != UP:
            heard = worker._replace(life=UP)
            yield Event("is heard again", at), with_worker(state, at, heard)
        if worker.phase == "idle":
            if worker.life == UP:
                yield from read(state, at)
        elif worker.phase == "read":
            yield from begin(state, at, rules)
        elif worker.phase == "confirming":
            yield from confirm(state, at, rules)
        elif worker.phase == "running":
            yield from run(state, at, rules)
        else:
            yield from report(state, at, rules)
