"""How many tasks are tried where only so many may run, and nobody here knows how many do.

The *allowance* doubles as long as all that is tried is claimed. If the answer is that there is no room, nothing is
tried until a place is free, or it is time to look again.
"""

PROBE = 8
"""Tasks that are tried when there may be room again."""

_MOST = 50


class Gate:
    """Of a concurrency key, or of a queue with `max_in_flight`."""

    def __init__(self) -> None:
        self.blocked = False
        """There was no room when last tried."""
        self.allowance = PROBE
        """Tasks that may be under way at once."""
        self._freed_meanwhile = (
            False  # since a task was let out: what is answered then may be outdated
        )

    def tried(self, claimed: int, held: int, still_out: int) -> None:
        """So many were claimed, so many found no room; of others it is not known yet."""
        if held:
            self.blocked = not self._freed_meanwhile
            self.allowance = PROBE
        elif claimed:
            self.allowance = min(_MOST, 2 * self.allowance)
        if held or not still_out:
            self._freed_meanwhile = False

    def free(self, out: int) -> None:
        """There may be room; so many are being tried just now."""
        self.blocked = False
        self._freed_meanwhile = out > 0
