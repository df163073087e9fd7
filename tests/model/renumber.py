"""Number entries and reports anew, in the same order, from 1: so that a state that comes round is found
to be one that was visited, and the search ends."""

from protocol_state import Redis, State


def renumbered(state: State) -> State:
    """The same state with the smallest ids. Ids are only compared with each other."""
    used = {state.store.start_id}
    for redis in (state.redis, state.replica):
        if redis is not None:
            used.update(entry.id for entry in redis.entries)
            used.update(report.id for report in redis.reports)
            used.update((redis.place, redis.newest))
    for worker in state.workers:
        used.update((worker.entry, worker.start_id))
    for node in state.nodes:
        if node.absent is not None:
            used.add(node.absent[1])
        if node.burial is not None:
            used.add(node.burial.entry)
    if state.standby is not None:
        used.add(state.standby.start_id)
    new = {old: at for at, old in enumerate(sorted(used | {0}))}
    if len(new) == state.seen.ids + 1:
        return state
    return state._replace(
        store=state.store._replace(start_id=new[state.store.start_id]),
        standby=state.standby and state.standby._replace(start_id=new[state.standby.start_id]),
        redis=_renumbered_redis(state.redis, new),
        replica=state.replica and _renumbered_redis(state.replica, new),
        workers=tuple(
            worker._replace(entry=new[worker.entry], start_id=new[worker.start_id])
            for worker in state.workers
        ),
        nodes=tuple(
            node._replace(
                absent=node.absent and (node.absent[0], new[node.absent[1]]),
                burial=node.burial and node.burial._replace(entry=new[node.burial.entry]),
            )
            for node in state.nodes
        ),
        seen=state.seen._replace(ids=len(new) - 1),
    )


def _renumbered_redis(redis: Redis, new: dict[int, int]) -> Redis:
    return redis._replace(
        entries=tuple(entry._replace(id=new[entry.id]) for entry in redis.entries),
        place=new[redis.place],
        reports=tuple(report._replace(id=new[report.id]) for report in redis.reports),
        newest=new[redis.newest],
    )
