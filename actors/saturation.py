"""Tells the prefetcher of which queues, and of which concurrency keys, the dispatcher holds all that it can.

What is due of them stays in the store meanwhile, and the best of it comes when there is room again.
"""

from collections.abc import Mapping

from duly.actors.context import Context
from duly.actors.line import Line
from duly.actors.messages import Saturated, SaturatedKeys

_TELL_EVERY_S = 1.0  # a restarted prefetcher does not know
_TELL_SOON_S = 0.05
_KEYS_MAX = 1_000


class Saturation:
    """What is saturated among `queues`, and what of it was told."""

    def __init__(self, context: Context, queues: Mapping[str, Line]) -> None:
        self._context = context
        self._queues = queues
        self._saturated: set[str] = set()
        self._told = Saturated(frozenset(), frozenset())
        self._tell_at = 0.0
        self._was_refused = False
        self._with_keys: set[str] = set()  # queues that have saturated keys
        self._told_keys = SaturatedKeys(frozenset(), frozenset())
        self._tell_keys_at = 0.0
        self._look_at_keys_at = 0.0
        self._looks_later = False  # it was too soon after the last look

    def includes(self, name: str) -> bool:
        """Whether a queue, or a key of it, was saturated when last looked at."""
        return name in self._saturated or name in self._with_keys

    def note(self, name: str) -> None:
        """The rows of a queue have changed."""
        ready = self._queues[name].ready
        if ready.saturated:
            self._saturated.add(name)
        else:
            self._saturated.discard(name)
        if ready.saturated_keys:
            self._with_keys.add(name)

    def wait_s(self, longest_s: float) -> float:
        """Seconds until something is to be told, at most `longest_s`."""
        now = self._context.clock.monotonic()
        if self._saturated:
            longest_s = min(longest_s, self._tell_at - now)
        if self._with_keys:
            at = self._look_at_keys_at if self._looks_later else self._tell_keys_at
            longest_s = min(longest_s, at - now)
        return max(0.0, longest_s)

    def tell(self) -> None:
        """Tell what has changed, and now and then what has not."""
        if self._saturated or self._told.queues:
            self._tell_queues()
        if self._with_keys or self._told_keys.keys:
            self._tell_keys()

    def _tell_queues(self) -> None:
        clock = self._context.clock
        now, now_us = clock.monotonic(), clock.now_us() - clock.ahead_us
        able = self._saturated - self._context.controls.paused
        hungry = frozenset(name for name in able if self._queues[name].ready.asks(now_us))
        state = Saturated(frozenset(self._saturated), hungry)
        is_told = state.queues == self._told.queues and not hungry
        if now < self._tell_at and (is_told or self._was_refused):
            return
        self._was_refused = not self._context.boxes.prefetcher.offer(state)
        if self._was_refused:
            self._tell_at = now + _TELL_SOON_S
            return
        for name in hungry:
            self._queues[name].ready.asked(now_us)
        self._told, self._tell_at = state, now + _TELL_EVERY_S

    def _tell_keys(self) -> None:
        now = self._context.clock.monotonic()
        if now < self._look_at_keys_at:
            self._looks_later = True
            return
        self._look_at_keys_at, self._looks_later = now + _TELL_SOON_S, False
        ready = {name: self._queues[name].ready for name in self._with_keys}
        keys = [(name, key) for name in ready for key in ready[name].saturated_keys][:_KEYS_MAX]
        able = ready.keys() - self._context.controls.paused
        hungry = {(name, key) for name in able for key in ready[name].hungry_keys}
        state = SaturatedKeys(frozenset(keys), frozenset(hungry.intersection(keys)))
        self._with_keys = {name for name in ready if ready[name].saturated_keys}
        if state == self._told_keys and now < self._tell_keys_at:
            return
        for name, key in state.hungry:
            ready[name].key_asked(key)
        if self._context.boxes.prefetcher.offer(state):
            self._told_keys, self._tell_keys_at = state, now + _TELL_EVERY_S
        else:
            self._tell_keys_at = now + _TELL_SOON_S
