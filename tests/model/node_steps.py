"""What nodes do (actors/firing.py, recorder.py, reaper.py, vanished.py, leases.py and their SQL and Lua)."""

from collections.abc import Iterator

from protocol_state import (
    COMPLETED,
    DEAD,
    FAILED,
    JUMP,
    PENDING,
    RUNNING,
    UP,
    Claim,
    Entry,
    Event,
    Known,
    Node,
    Redis,
    Rules,
    State,
    Store,
)

Steps = Iterator[tuple[Event, State]]


def with_node(state: State, at: int, node: Node) -> State:
    """The state with one node replaced."""
    return state._replace(nodes=(*state.nodes[:at], node, *state.nodes[at + 1 :]))


def commit(state: State, store: Store) -> State:
    """Commit to PostgreSQL; the standby, if a promotion is to come, has all but this."""
    if state.faults.promotion:
        return state._replace(store=store, standby=state.store)
    return state._replace(store=store)


# Ownership and claims


def ownership(state: State, at: int, rules: Rules) -> Steps:
    """Notice a loss, take over from a node that is gone (or seems so), read what is due."""
    node, store = state.nodes[at], state.store
    if not node.epoch:
        yield from take_over(state, at, rules)
        return
    # After a refusal it reads the slot's epoch. Without one it learns of a loss by its lease.
    if node.epoch < store.epoch or (
        node.refused and rules.verify_epoch and node.epoch != store.epoch
    ):
        lost = node._replace(epoch=0, known=None, refused=False)
        yield Event("notice", at), with_node(state, at, lost)
    if not node.known and not node.claim and store.status == PENDING:
        known = Known(store.version, store.due)
        yield Event("load", at), with_node(state, at, node._replace(known=known))


def take_over(state: State, at: int, rules: Rules) -> Steps:
    """Take a slot whose lease is over, and raise its epoch."""
    store, faults = state.store, state.faults
    false = any(other.life == UP and other.epoch == store.epoch for other in state.nodes)
    if false and not faults.false_expiry:
        return
    if any(other.life == UP and other.epoch > store.epoch for other in state.nodes):
        return  # a promotion lost its take-over; it holds the lease, and has yet to find out
    checked = any(one.claim and one.claim.phase == "checked" for one in state.nodes)
    if checked and rules.epoch_lock:
        return  # FOR SHARE: it waits for the claim's commit
    base = store.timeline * JUMP if rules.epoch_jump else 0
    taken = store._replace(epoch=max(store.epoch, base) + 1, slot_owner=at)
    after = with_node(state, at, state.nodes[at]._replace(epoch=taken.epoch))
    if false:
        after = after._replace(faults=faults._replace(false_expiry=faults.false_expiry - 1))
    yield Event("take over falsely" if false else "take over", at), commit(after, taken)


def send_claim(state: State, at: int, rules: Rules) -> Steps:
    """Send the claim of a due task. It is judged later, perhaps after a take-over."""
    node = state.nodes[at]
    if not (node.known and node.epoch and not node.publishing and node.known.due <= state.clock):
        return
    claim = Claim("sent", node.known, node.epoch)
    after = with_node(state, at, node._replace(known=None, claim=claim))
    if not rules.publish_after_commit:
        token = next_token(state.store, node.known.version, rules)
        after = after._replace(redis=publish(after.redis, token, state.seen.ids + 1, rules))
        after = after._replace(seen=after.seen._replace(ids=after.seen.ids + 1))
        yield Event("publish", at, token), after
    else:
        yield Event("send claim", at), after


def judge_claim(state: State, at: int, rules: Rules) -> Steps:
    """PostgreSQL runs a claim that was sent, whether or not its node still lives."""
    node = state.nodes[at]
    claim = node.claim
    if claim is None or claim.phase == "doubt":
        return
    if claim.phase == "sent" and rules.claim_epoch and claim.epoch != state.store.epoch:
        refused = node._replace(claim=None, refused=bool(node.epoch))
        yield Event("claim refused", at), with_node(state, at, refused)
        return
    if claim.phase == "sent" and rules.claim_epoch and not rules.epoch_lock:
        checked = node._replace(claim=claim._replace(phase="checked"))
        yield Event("claim checked", at), with_node(state, at, checked)
        return
    claimed = claim_row(state, at, claim, rules)
    token = claimed.store.version if claimed is not state else 0
    event = Event("claim", at, token) if token else Event("claim nothing", at)
    alive = node.life != DEAD
    known = node._replace(claim=None, publishing=token if alive else 0)
    if not rules.publish_after_commit:
        known = known._replace(publishing=0)
    yield event, with_node(claimed, at, known)
    if state.faults.doubt and alive:
        faults = state.faults._replace(doubt=state.faults.doubt - 1)
        doubted = node._replace(claim=claim._replace(phase="doubt"))
        yield event, with_node(claimed._replace(faults=faults), at, doubted)


def claim_row(state: State, at: int, claim: Claim, rules: Rules) -> State:
    """The claim's UPDATE; the state itself if it matches nothing."""
    store = state.store
    if rules.claim_version and store.version != claim.known.version:
        return state
    if rules.claim_status and store.status != PENDING:
        return state
    token = next_token(store, store.version, rules)
    row = store._replace(status=RUNNING, version=token, claimed_by=at, start_id=0)
    seen = state.seen._replace(claimed=(*state.seen.claimed, token))
    return commit(state._replace(seen=seen), row)


def next_token(store: Store, version: int, rules: Rules) -> int:
    """`greatest(version, base) + 1`, the base being the timeline's."""
    base = store.timeline * JUMP if rules.timeline_jump else 0
    return max(version, base) + 1


def read_back(state: State, at: int) -> Steps:
    """After a claim in doubt: what of it is ours is published."""
    node, store = state.nodes[at], state.store
    if node.claim is None or node.claim.phase != "doubt":
        return
    ours = store.status == RUNNING and store.claimed_by == at
    ours = ours and store.version > node.claim.known.version
    token = store.version if ours else 0
    yield (
        Event("read back", at, token),
        with_node(state, at, node._replace(claim=None, publishing=token)),
    )


# Publishing


def publish(redis: Redis, token: int, entry: int, rules: Rules) -> Redis:
    """publish.lua."""
    if redis.inflight == token:
        if any(one.id == redis.place for one in redis.entries):
            return redis
    elif redis.inflight > token and rules.publish_keeps_higher:
        return redis
    entries = (*redis.entries, Entry(entry, token))
    return redis._replace(entries=entries, inflight=token, place=entry)


def publish_claimed(state: State, at: int, rules: Rules) -> Steps:
    """Publish what was claimed, or what vanished."""
    node = state.nodes[at]
    token = node.publishing
    if token == 0:
        return
    if token < 0:
        runs = state.store.status == RUNNING and state.store.version == -token
        looked = node._replace(publishing=-token if runs else 0)
        yield Event("look again", at, -token), with_node(state, at, looked)
        return
    redis = publish(state.redis, token, state.seen.ids + 1, rules)
    after = state
    if redis is not state.redis:
        after = state._replace(redis=redis, seen=state.seen._replace(ids=state.seen.ids + 1))
    yield Event("publish", at, token), with_node(after, at, node._replace(publishing=0))
    if state.faults.doubt:
        faults = state.faults._replace(doubt=state.faults.doubt - 1)
        lost = with_node(after._replace(faults=faults), at, node._replace(publishing=-token))
        yield Event("publish", at, token), lost


# Recording


def record(state: State, token: int, outcome: str, rules: Rules) -> State:
    """complete and settle in claims.sql; the state itself if the outcome is stale."""
    store = state.store
    if rules.record_token and store.version != token:
        return state
    if (rules.record_status or not rules.record_token) and store.status != RUNNING:
        return state
    return commit(state, ended(store, token, outcome, rules))


def ended(store: Store, token: int, outcome: str, rules: Rules) -> Store:
    """The row after an outcome: outcomes.decide."""
    recorded = (*store.recorded, token)
    if outcome == COMPLETED:
        return store._replace(status=COMPLETED, recorded=recorded)
    final = (outcome == "lost" and rules.on_lost_fail) or store.retries >= rules.max_retries
    if final:
        return store._replace(status=FAILED, recorded=recorded)
    return store._replace(
        status=PENDING, retries=store.retries + 1, start_id=0, claimed_by=-1, recorded=recorded
    )


def settle(redis: Redis, token: int, rules: Rules) -> Redis:
    """settle.lua, but for the entry that told of it."""
    if redis.inflight != token and rules.settle_token:
        return redis
    entries = tuple(one for one in redis.entries if one.id != redis.place)
    return redis._replace(entries=entries, inflight=0, place=0)


def recorder(state: State, rules: Rules) -> Steps:
    """Any node that is up: record a report, then remove it; a crash in between repeats it."""
    if not any(node.life == UP for node in state.nodes):
        return
    reports = state.redis.reports
    for at, report in enumerate(reports):
        marked = (*reports[:at], report._replace(handled=True), *reports[at + 1 :])
        left = (*reports[:at], *reports[at + 1 :]) if report.handled else marked
        after = state._replace(redis=state.redis._replace(reports=left))
        if report.handled is not rules.record_before_settle:
            stored = record(after, report.token, report.outcome, rules)
            name = "stale report" if stored is after else "record"
            yield Event(name, -1, report.token, report.outcome), stored
        else:
            redis = settle(after.redis, report.token, rules)
            yield Event("settle", -1, report.token), after._replace(redis=redis)
