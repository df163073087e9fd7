"""What goes wrong, and what clients do: each as often as the scenario's budget says."""

from node_steps import Steps, commit, with_node
from protocol_state import (
    CANCELLED,
    DEAD,
    PAUSED,
    PENDING,
    RUNNING,
    SILENT,
    UP,
    Event,
    Faults,
    Node,
    Redis,
    Rules,
    State,
)
from worker_steps import IDLE, distinct, with_worker


def spent(state: State, name: str) -> State:
    """The state with one less of a fault to come."""
    left: Faults = state.faults._replace(**{name: getattr(state.faults, name) - 1})
    return state._replace(faults=left)


def node_faults(state: State, rules: Rules) -> Steps:
    """A node dies or stops for a while. One is left up."""
    for at, node in enumerate(state.nodes):
        if node.life != UP or sum(other.life == UP for other in state.nodes) < 2:
            continue
        if state.faults.node_crash:
            # A claim that was sent may still be run.
            sent = node.claim if node.claim and node.claim.phase != "doubt" else None
            gone = with_node(spent(state, "node_crash"), at, Node(DEAD, claim=sent))
            left = tuple(
                report._replace(handled=False) for report in state.redis.reports
                if rules.record_before_settle or not report.handled
            )  # fmt: skip
            redis = gone.redis._replace(reports=left)
            yield Event("node crash", at), gone._replace(redis=redis)
        if state.faults.node_pause:
            paused = node._replace(life=PAUSED)
            yield Event("node pause", at), with_node(spent(state, "node_pause"), at, paused)


def worker_faults(state: State) -> Steps:
    """A worker dies, or its liveness runs out. One is left up."""
    for at, worker in distinct(state):
        if worker.life != UP or sum(other.life == UP for other in state.workers) < 2:
            continue
        if state.faults.worker_crash:
            dead = IDLE._replace(life=DEAD)
            yield Event("worker crash", at), with_worker(spent(state, "worker_crash"), at, dead)
        if state.faults.worker_silence:
            silent = worker._replace(life=SILENT)
            after = with_worker(spent(state, "worker_silence"), at, silent)
            yield Event("worker silence", at), after


def server_faults(state: State) -> Steps:
    """Redis loses everything, or its last write; PostgreSQL's standby lacks the last commit."""
    if state.faults.redis_loss:
        yield (
            Event("Redis loses all"),
            spent(state, "redis_loss")._replace(redis=Redis(), replica=None),
        )
    if state.faults.redis_rewind and state.replica is not None:
        rewound = spent(state, "redis_rewind")._replace(redis=state.replica, replica=None)
        yield Event("Redis loses a write"), rewound
    if state.faults.promotion and state.standby is not None:
        store = state.standby._replace(timeline=state.standby.timeline + 1)
        yield Event("promotion"), spent(state, "promotion")._replace(store=store, standby=None)


def clients(state: State, rules: Rules) -> Steps:
    """A cancel (commit, supersede, answer), a change to a later time, and time going on."""
    store = state.store
    if state.faults.cancel and store.status in (PENDING, RUNNING):
        row = store._replace(status=CANCELLED, version=store.version + 1)
        cancelled = commit(spent(state, "cancel"), row)._replace(cancel=store.status)
        yield Event("cancel", -1, row.version, store.status), cancelled
    if state.cancel in (PENDING, RUNNING):
        redis = state.redis
        supersede = rules.supersede_running if state.cancel == RUNNING else rules.supersede_pending
        claimed_before = store.version > 1
        if supersede and claimed_before and redis.inflight < store.version:
            left = tuple(one for one in redis.entries if one.id != redis.place or one.holder >= 0)
            redis = redis._replace(entries=left, inflight=store.version, place=0)
        answered = state._replace(redis=redis, cancel=f"answered-{state.cancel}")
        yield Event("answer", -1, store.version), answered
    if state.faults.change and store.status == PENDING:
        row = store._replace(version=store.version + 1, due=store.due + 1)
        yield Event("change", -1, row.version), commit(spent(state, "change"), row)
    if state.clock < store.due:
        yield Event("time"), state._replace(clock=state.clock + 1)


def fault_steps(state: State, rules: Rules) -> Steps:
    """Every fault and every act of a client that may come now."""
    yield from node_faults(state, rules)
    yield from worker_faults(state)
    yield from server_faults(state)
    yield from clients(state, rules)
