"""Bounded sets of label values: a client that makes up names fills neither memory nor Prometheus."""

OTHER = "_other"
"""Stands for every name beyond the first so many."""


class Names:
    """The first `most` names stand for themselves, as long as the process lives."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        """The name itself, or `OTHER`."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most:
                return OTHER
            known = self._known[name] = name
        return known
