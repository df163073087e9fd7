"""The protocol, exhaustively: what holds with every safeguard, and what breaks without one of them.

docs/model.md tells what is modelled, and how much there was to visit.
"""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from explore import STUCK, Scenario, explore
from protocol_invariants import (
    SAFETY,
    Check,
    cancel_stops,
    cancel_wins,
    claim_first,
    never_early,
    no_needless_repeat,
    one_effect,
    one_outcome,
    one_owner,
    one_start,
    own_token,
    tokens_grow,
)
from protocol_state import Faults, Rules

PAGE = Path(__file__).parent.parent.parent / "docs" / "model.md"

MAY_START_AGAIN = Rules()
MUST_NOT_START_TWICE = Rules(on_lost_fail=True)


def scenario(*also: Check, rules: Rules = MAY_START_AGAIN, **faults: int) -> Scenario:
    """May go wrong: `faults`. Must hold of each start: `also`."""
    return Scenario(Faults(**faults), rules, also)


SCENARIOS = {
    "nothing goes wrong": scenario(no_needless_repeat),
    "a node and a worker crash, a lease ends falsely": scenario(
        no_needless_repeat, node_crash=1, worker_crash=1, false_expiry=1
    ),
    "a node crashes, a worker is taken for dead": scenario(
        no_needless_repeat, node_crash=1, worker_silence=1
    ),
    "a node crashes, a lease ends falsely, the handler fails": scenario(
        no_needless_repeat, node_crash=1, false_expiry=1, failure=1
    ),
    "a node is paused, a node crashes": scenario(node_pause=1, node_crash=1),
    "a node is paused, the handler fails": scenario(node_pause=1, failure=1),
    "two answers are lost, a node crashes": scenario(doubt=2, node_crash=1),
    "Redis loses all, a node crashes": scenario(redis_loss=1, node_crash=1),
    "Redis loses all, a worker crashes": scenario(redis_loss=1, worker_crash=1),
    "Redis loses its last write, a node crashes": scenario(redis_rewind=1, node_crash=1),
    "Redis loses its last write, a worker crashes": scenario(redis_rewind=1, worker_crash=1),
    "Redis loses its last write, the handler fails": scenario(redis_rewind=1, failure=1),
    "a cancel, a worker is taken for dead": scenario(cancel_stops, cancel=1, worker_silence=1),
    "a cancel, a node and a worker crash": scenario(
        cancel_stops, cancel=1, node_crash=1, worker_crash=1
    ),
    "a cancel, a node is paused": scenario(cancel_stops, cancel=1, node_pause=1),
    "a change, a lease ends falsely, a node crashes": scenario(
        no_needless_repeat, change=1, false_expiry=1, node_crash=1
    ),
    "a promotion loses a commit, a worker crashes": scenario(promotion=1, worker_crash=1),
    "a promotion loses a commit, a lease ends falsely": scenario(promotion=1, false_expiry=1),
    "a promotion loses a commit, the handler fails": scenario(promotion=1, failure=1),
    "must not start twice: a node crashes, a worker is taken for dead": scenario(
        one_start, rules=MUST_NOT_START_TWICE, node_crash=1, worker_silence=1
    ),
    "must not start twice: Redis loses all, a worker crashes": scenario(
        one_start, rules=MUST_NOT_START_TWICE, redis_loss=1, worker_crash=1
    ),
    "must not start twice: Redis loses all, a worker is taken for dead": scenario(
        one_start, rules=MUST_NOT_START_TWICE, redis_loss=1, worker_silence=1
    ),
    "must not start twice: Redis loses its last write, a worker crashes": scenario(
        one_start, rules=MUST_NOT_START_TWICE, redis_rewind=1, worker_crash=1
    ),
    "must not start twice: an answer is lost, a worker is taken for dead": scenario(
        one_start, rules=MUST_NOT_START_TWICE, doubt=1, worker_silence=1
    ),
}


class Removal(NamedTuple):
    """One safeguard less: where it is missed, and which invariant tells."""

    scenario: Scenario
    broken: str


def missed(
    check: Check | str, *also: Check, rules: Rules = MAY_START_AGAIN, **faults: int
) -> Removal:
    """Found by `check` in the scenario of the rest."""
    name = check if isinstance(check, str) else check.__name__
    return Removal(scenario(*also, rules=rules, **faults), name)


REMOVALS = {
    "claim_version": missed(never_early, change=1, false_expiry=1),
    "claim_epoch": missed(one_owner, false_expiry=1),
    "epoch_lock": missed(one_owner, false_expiry=1),
    "epoch_jump": missed(one_owner, promotion=1, false_expiry=1),
    "verify_epoch": missed(STUCK, promotion=1, false_expiry=1),
    "publish_after_commit": missed(claim_first),
    "publish_keeps_higher": missed(cancel_stops, cancel_stops, cancel=1, node_pause=1),
    "begin_inflight": missed(cancel_stops, cancel_stops, cancel=1, worker_silence=1),
    "confirm": missed(one_start, one_start, rules=MUST_NOT_START_TWICE, worker_silence=1),
    "confirm_start_id": missed(one_start, one_start, rules=MUST_NOT_START_TWICE, redis_loss=1),
    "guard": missed(one_effect, worker_silence=1),
    "report_with_ack": missed(no_needless_repeat, no_needless_repeat, worker_crash=1),
    "record_token": missed(own_token, worker_silence=1),
    "record_status": missed(own_token, worker_silence=1),
    "record_before_settle": missed(no_needless_repeat, no_needless_repeat, node_crash=1),
    "settle_token": missed(no_needless_repeat, no_needless_repeat, worker_silence=1),
    "reaper_token": missed(own_token, worker_silence=1),
    "republish": missed(STUCK, node_crash=1),
    "republish_mark": missed(no_needless_repeat, no_needless_repeat),
    "end_started": missed(
        STUCK, one_start, rules=MUST_NOT_START_TWICE, redis_loss=1, worker_crash=1
    ),
    "supersede_pending": missed(cancel_wins, cancel_stops, cancel=1, worker_silence=1),
    "supersede_running": missed(cancel_stops, cancel_stops, cancel=1),
    "timeline_jump": missed(tokens_grow, promotion=1),
}

REDUNDANT = {
    "claim_status": Scenario(Faults(cancel=1, change=1, failure=1, false_expiry=1)),
    "claim_epoch": Scenario(Faults(node_crash=1, failure=1, false_expiry=1), but=(one_owner,)),
}
"""Another safeguard covers for these: nothing breaks (of claim_epoch: but its own invariant)."""


def without(safeguard: str, of: Scenario) -> Scenario:
    """The scenario with one safeguard switched off."""
    off: dict[str, Any] = {safeguard: False}
    return of._replace(rules=replace(of.rules, **off))


explored = cache(explore)
"""Some scenarios are asked for more than once."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_rule_holds_in_every_state(name: str) -> None:
    result = explored(SCENARIOS[name])
    assert result.broken is None, str(result)


@pytest.mark.parametrize("safeguard", REMOVALS)
def test_the_absence_of_a_safeguard_is_found(safeguard: str) -> None:
    removal = REMOVALS[safeguard]
    with_it = explored(removal.scenario)
    assert with_it.broken is None, str(with_it)
    result = explore(without(safeguard, removal.scenario))
    assert result.broken == removal.broken, str(result)


@pytest.mark.parametrize("safeguard", REDUNDANT)
def test_a_safeguard_that_another_covers_for(safeguard: str) -> None:
    result = explore(without(safeguard, REDUNDANT[safeguard]))
    assert result.broken is None, str(result)


def test_every_safeguard_is_switched_off_once() -> None:
    switches = {field.name for field in fields(Rules)} - {"on_lost_fail", "max_retries"}
    assert switches == {*REMOVALS, *REDUNDANT}


def test_every_invariant_is_broken_once() -> None:
    names = {check.__name__ for checks in SAFETY.values() for check in checks}
    names |= {check.__name__ for case in SCENARIOS.values() for check in case.also} | {STUCK}
    broken = {removal.broken for removal in REMOVALS.values()}
    # A claim of what is not pending would take two safeguards to be missing, and so would a token
    # that ends twice: the first of the two checks of a record is always the one that tells.
    assert names - broken == {"claimed_once", one_outcome.__name__}


def test_every_step_is_taken() -> None:
    """A step that is never possible would make all of this hold for nothing."""
    taken = frozenset[str]().union(*(explored(case).seen for case in SCENARIOS.values()))
    assert taken == {
        "load", "notice", "take over", "take over falsely", "send claim", "claim", "claim nothing",
        "claim refused", "read back", "publish", "look again", "record", "stale report", "settle",
        "find lost", "miss", "republish", "resume", "read", "begin", "drop", "start", "refused",
        "grant without answer", "effect", "effect refused", "fail", "report", "is heard again",
        "node crash", "node pause", "worker crash", "worker silence", "Redis loses all",
        "Redis loses a write", "promotion",
        "cancel", "answer", "change", "time",
    }  # fmt: skip


def test_the_page_names_every_scenario_and_safeguard() -> None:
    page = PAGE.read_text()
    assert [name for name in (*SCENARIOS, *REMOVALS, *REDUNDANT) if name not in page] == []
