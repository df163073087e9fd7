"""Makes a cluster as declared, beside others who do the same.

Each task is changed by itself, at the version at which it was compared. If it has changed since, it is compared
and decided anew; so two who apply at once leave each task as one of them declares it, and never two of one name.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from duly.nodes.client import Conflict, NotFound, PreconditionFailed, SyncClient
from duly.nodes.client.models import Task
from duly.nodes.declared.interrupts import put_off
from duly.nodes.declared.planning import Step, UnwantedError, owner_of, step, surplus
from duly.nodes.declared.reading import OWNER_TAG, Declarations

_AGAIN_S: Final = 0.2


class StillRunsError(Exception):
    """A task ran all the time, and what differs cannot be changed meanwhile."""


class Applying:
    """Plans against a cluster, and carries the steps out."""

    def __init__(
        self,
        client: SyncClient,
        declarations: Declarations,
        *,
        take_over: bool,
        replace: bool,
        wait_s: float,
    ) -> None:
        """`wait_s`: for how long a task is waited for that is running, or changes all the time.

        `take_over`: also tasks of other owners. `replace`: what cannot be changed is cancelled and submitted anew.
        """
        self._client = client
        self._declarations = declarations
        self._take_over = take_over
        self._replaces = replace
        self._wait_s = wait_s

    def plan(self, *, prune: bool) -> list[Step]:
        """All steps, in the order of the file, then what is deleted. Raises `UnwantedError`."""
        steps = [self._step(name) for name in self._declarations.tasks]
        owner = self._declarations.owner
        if prune and owner is not None:
            theirs = list(self._client.list(tag=f"{OWNER_TAG}:{owner}"))
            steps += surplus(theirs, frozenset(self._declarations.tasks), owner)
        return steps

    def check(self, steps: Sequence[Step]) -> None:
        """Raise `UnwantedError` if some must be replaced, and that was not asked for."""
        if not self._replaces and (fixed := [one for one in steps if one.kind == "replace"]):
            said = "; ".join(f"{one.name} ({', '.join(f[0] for f in one.fields)})" for one in fixed)
            raise UnwantedError(
                f"cannot be changed in place: {said}; --replace cancels and submits anew"
            )

    def carry_out(self, planned: Step) -> Step:
        """Do it, or what has to be done by now; answers what was done.

        Raises `UnwantedError`, `StillRunsError`, and what the client raises.
        """
        until = time.monotonic() + self._wait_s
        current = planned
        while True:
            try:
                return self._do(current)
            except (Conflict, NotFound, PreconditionFailed) as error:
                if time.monotonic() >= until:
                    raise StillRunsError(f"{current.name}: {error}") from error
            time.sleep(_AGAIN_S)
            current = self._again(current)

    def _step(self, name: str) -> Step:
        declared, owner = self._declarations.tasks[name], self._declarations.owner
        return step(declared, self._live(name), owner, take_over=self._take_over)

    def _again(self, one: Step) -> Step:
        if one.declared is not None:
            return self._step(one.name)
        live = self._live(one.name)
        if live is None or owner_of(live) != self._declarations.owner:
            return one._replace(kind="keep", live=live)
        return one._replace(live=live)

    def _live(self, name: str) -> Task | None:
        try:
            return self._client.get_by_name(name)
        except NotFound:
            return None

    def _do(self, one: Step) -> Step:
        acts: dict[str, Callable[[Step], None]] = {
            "add": self._add, "change": self._change, "replace": self._replace, "delete": self._delete,
        }  # fmt: skip
        if one.kind != "keep":
            acts[one.kind](one)
        return one

    def _add(self, one: Step) -> None:
        assert one.declared is not None
        self._client.submit(**one.declared.body)

    def _change(self, one: Step) -> None:
        assert one.live is not None
        self._client.update(one.live.id, one.live.version, **one.changes)

    def _replace(self, one: Step) -> None:
        self.check([one])
        with put_off():  # an interrupt in between would leave no task
            self._delete(one)
            self._add(one)

    def _delete(self, one: Step) -> None:
        assert one.live is not None
        self._client.cancel(one.live.id)
