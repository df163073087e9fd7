"""What reapers do (actors/reaper.py, old_claims.py, vanished.py), and with it the list of all that nodes do."""

from node_steps import (
    Steps,
    judge_claim,
    ownership,
    publish_claimed,
    read_back,
    record,
    recorder,
    send_claim,
    settle,
    with_node,
)
from protocol_state import (
    DEAD,
    PAUSED,
    RUNNING,
    SILENT,
    UP,
    Burial,
    Event,
    Redis,
    Report,
    Rules,
    State,
)


def bury(state: State, at: int, rules: Rules) -> Steps:
    """Entries of a worker whose liveness is gone: look, record `lost`, take the entry out."""
    node = state.nodes[at]
    if node.burial is None:
        for entry in state.redis.entries:
            if entry.holder >= 0 and state.workers[entry.holder].life in (DEAD, SILENT):
                found = Burial(False, entry.id, entry.token)
                yield (
                    Event("find lost", at, entry.token),
                    with_node(state, at, node._replace(burial=found)),
                )
        return
    _, entry_id, token = node.burial
    if not node.burial.recorded:
        relaxed = rules.reaper_token or state.store.status != RUNNING
        after = record(state, token if relaxed else state.store.version, "lost", rules)
        name = "record" if after is not state else "stale report"
        buried = node._replace(burial=node.burial._replace(recorded=True))
        yield Event(name, at, token, "lost"), with_node(after, at, buried)
        return
    entries = tuple(one for one in state.redis.entries if one.id != entry_id)
    redis = settle(state.redis._replace(entries=entries), token, rules)
    yield (
        Event("settle", at, token),
        with_node(state._replace(redis=redis), at, node._replace(burial=None)),
    )


def vanished(state: State, at: int, rules: Rules) -> Steps:
    """Running, and in no stream: looked for twice, then published again under the same token."""
    node, store, redis = state.nodes[at], state.store, state.redis
    if not rules.republish or not node.epoch or node.publishing or node.claim:
        return
    token = store.version
    if store.status != RUNNING or any(
        other.life == UP and abs(other.publishing) == token for other in state.nodes
    ):
        return  # not older than dispatch_grace, within which a healthy node publishes
    placed = redis.inflight == token and any(one.id == redis.place for one in redis.entries)
    if placed:
        return
    if rules.republish_mark and (node.absent is None or node.absent[0] != token):
        seen = node._replace(absent=(token, redis.newest))
        yield Event("miss", at, token), with_node(state, at, seen)
        return
    mark = node.absent[1] if node.absent else 0
    if rules.republish_mark and any(report.id <= mark for report in unsettled(redis, rules)):
        return
    again = node._replace(absent=None, publishing=token)
    if store.start_id and rules.end_started:
        # Granted, so nobody else can start it: over when its timeout is.
        after = record(state, token, "lost", rules)
        yield Event("record", at, token, "lost"), with_node(after, at, node._replace(absent=None))
    else:
        yield Event("republish", at, token), with_node(state, at, again)


def unsettled(redis: Redis, rules: Rules) -> list[Report]:
    """The reports that the stream still has."""
    if rules.record_before_settle:
        return list(redis.reports)
    return [report for report in redis.reports if not report.handled]


def node_steps(state: State, rules: Rules) -> Steps:
    """Every step that some node can take."""
    for at, node in enumerate(state.nodes):
        if node.claim is not None:
            yield from judge_claim(state, at, rules)
        if node.life == PAUSED:
            yield Event("resume", at), with_node(state, at, node._replace(life=UP))
        if node.life != UP:
            continue
        yield from ownership(state, at, rules)
        yield from send_claim(state, at, rules)
        yield from read_back(state, at)
        yield from publish_claimed(state, at, rules)
        yield from bury(state, at, rules)
        yield from vanished(state, at, rules)
    yield from recorder(state, rules)
