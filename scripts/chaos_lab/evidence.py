"""What a run left behind: the client's log, the workers' logs, the final store. Imports nothing of duly.

Every time is in seconds since the epoch, by the one clock of the machine that all but the nodes use.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from chaos_lab.journal import read

CLIENT_LOG = "client.jsonl"
FAULT_LOG = "faults.jsonl"
STORE_FILE = "store.jsonl"
WORKER_LOGS = "worker-*.jsonl"


class Task(NamedTuple):
    """A submission. `accepted`: True after a 2xx, None if no clear answer came by `answered`."""

    id: str
    kind: str
    sent: float
    due: float
    max_retries: int
    retry_delay: float
    accepted: bool | None
    answered: float | None = None
    every: float | None = None
    """Of a periodic task: its occurrences are `due` and so many seconds after each other."""
    runs: int = 1
    """Occurrences that run before it ends."""


class Answer(NamedTuple):
    """What was said to a cancel or a change; `status` None: no clear answer."""

    id: str
    sent: float
    answered: float
    status: int | None
    due: float | None
    """The new due time of a change."""


class Start(NamedTuple):
    """A handler began. `version`: which version of the payload it was given."""

    id: str
    token: int
    at: float
    worker: str
    version: int


class End(NamedTuple):
    """A handler came to its end; written before the report is sent."""

    id: str
    token: int
    at: float
    worker: str
    outcome: str
    result: str | None


class Final(NamedTuple):
    """A task in the store: `status` as there."""

    id: str
    status: str
    token: int
    result: str | None


class Run(NamedTuple):
    """A recorded attempt, in the order in which they were recorded."""

    id: str
    token: int
    outcome: str
    recorded: float
    result: str | None
    occurrence: float = 0.0
    """Nominal time of the occurrence."""
    verdict: str | None = None
    """What became of the occurrence; None: it went on after this."""
    ran: bool = True
    """False: it only waited when it was skipped or cancelled."""


class Effect(NamedTuple):
    """An effect that was applied through `ctx.exactly_once`."""

    id: str
    occurrence: str
    token: int


@dataclass
class Evidence:
    """All of it. The lists of the store are complete: what is not in them is not there."""

    tasks: dict[str, Task] = field(default_factory=dict)
    cancels: list[Answer] = field(default_factory=list)
    changes: list[Answer] = field(default_factory=list)
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[tuple[str, int], list[End]] = field(default_factory=lambda: defaultdict(list))
    finals: dict[str, list[Final]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    effects: list[Effect] = field(default_factory=list)
    leftovers: dict[str, int] = field(default_factory=dict)
    """Size of each Redis key that must be empty at the end."""

    def add(self, *records: Start | End | Final | Run | Effect | Task) -> None:
        """Take in records of any kind but answers."""
        for record in records:
            match record:
                case Task():
                    self.tasks[record.id] = record
                case Start():
                    self.starts[record.id].append(record)
                case End():
                    self.ends[record.id, record.token].append(record)
                case Final():
                    self.finals[record.id].append(record)
                case Run():
                    self.runs[record.id].append(record)
                case Effect():
                    self.effects.append(record)


def load(folder: Path) -> Evidence:
    """Read the evidence of a run. Raises OSError or ValueError when it is not whole."""
    found = Evidence()
    _load_client(found, read(folder / CLIENT_LOG))
    for path in sorted(folder.glob(WORKER_LOGS)):
        for line in read(path):
            kind = line.pop("e")
            found.add(Start(**line) if kind == "start" else End(**line))
    makers = {"final": Final, "run": Run, "effect": Effect}
    for line in read(folder / STORE_FILE):
        kind = line.pop("e")
        if kind == "leftover":
            found.leftovers[line["key"]] = line["size"]
        else:
            found.add(makers[kind](**line))
    return found


def _load_client(found: Evidence, lines: Iterable[Any]) -> None:
    batches: dict[int, list[Task]] = {}
    for line in lines:
        kind = line.pop("e")
        if kind == "submit":
            batches[line["batch"]] = [
                Task(**task, sent=line["sent"], accepted=None) for task in line["tasks"]
            ]
        elif kind == "submitted":
            # A batch without such a line was never answered: it may be stored or not.
            answer = {"accepted": line["accepted"], "answered": line["at"]}
            batches[line["batch"]] = [task._replace(**answer) for task in batches[line["batch"]]]
        else:
            (found.cancels if kind == "cancel" else found.changes).append(Answer(**line))
    for batch in batches.values():
        found.add(*batch)
