"""What must hold whenever something happens: functions of the state before, the event, the state after."""

from collections.abc import Callable

from protocol_state import FINAL, RUNNING, Event, State

Check = Callable[[State, Event, State], bool]


def tokens_grow(before: State, event: Event, after: State) -> bool:
    """Each claim's token is higher than any before it, so none is used twice."""
    return all(event.token > token for token in before.seen.claimed)


def one_owner(before: State, event: Event, after: State) -> bool:
    """A claim commits only by the slot's owner, with its epoch as it is at that moment."""
    claim = before.nodes[event.who].claim
    store = before.store
    return claim is not None and (claim.epoch, event.who) == (store.epoch, store.slot_owner)


def never_early(before: State, event: Event, after: State) -> bool:
    """No task is claimed before it is due."""
    return before.store.due <= before.clock


def claimed_once(before: State, event: Event, after: State) -> bool:
    """Only a pending task is claimed."""
    return before.store.status == "pending"


def claim_first(before: State, event: Event, after: State) -> bool:
    """What is published has been claimed, and that has committed."""
    return event.token in before.seen.claimed


def own_token(before: State, event: Event, after: State) -> bool:
    """An outcome is recorded only of the token that runs."""
    return before.store.status == RUNNING and before.store.version == event.token


def one_outcome(before: State, event: Event, after: State) -> bool:
    """A token has one recorded outcome, and nothing is recorded after the last one."""
    return event.token not in before.store.recorded and before.store.status not in FINAL


def cancel_wins(before: State, event: Event, after: State) -> bool:
    """No handler starts once a cancel of a pending task was answered with 200."""
    return before.cancel != "answered-pending"


def cancel_stops(before: State, event: Event, after: State) -> bool:
    """No handler starts once a cancel of a running task was answered with 200."""
    return before.cancel != "answered-running"


def one_start(before: State, event: Event, after: State) -> bool:
    """on_lost = fail: a token starts once at most, and only while the task runs under it."""
    return event.token not in before.seen.started and own_token(before, event, after)


def no_needless_repeat(before: State, event: Event, after: State) -> bool:
    """A token starts once, if neither Redis's data nor an answer was lost and no node was late."""
    return event.token not in before.seen.started


def one_effect(before: State, event: Event, after: State) -> bool:
    """The effect is applied once, whatever happens."""
    return before.seen.effects == 0


SAFETY: dict[str, tuple[Check, ...]] = {
    "claim": (tokens_grow, one_owner, never_early, claimed_once),
    "publish": (claim_first,),
    "record": (own_token, one_outcome),
    "start": (cancel_wins,),
    "effect": (one_effect,),
}
"""Event -> what must hold of it, always. The others hold where a scenario says so."""
