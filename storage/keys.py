"""Every Redis key of Duly, in one place (design, section 7).

A queue's keys share the hash tag `{queue}`, so that in a Redis Cluster they live on one server
and a script may touch all of them.
"""

QUEUE_NAME = r"(?!(?:.*/)?\.\.?(?:/|$))[A-Za-z0-9_.:/-]{1,100}"
"""A queue's name. No part between slashes is `.` or `..`: in a URL, clients and proxies would resolve it."""

WORKERS_GROUP = "workers"
"""Consumer group of a queue's tasks stream: every worker reads through it."""

NODES_GROUP = "nodes"
"""Consumer group of a queue's reports stream: every node reads through it."""


def nodes_group(store: int) -> str:
    """The same of one of several stores: each reads all reports, and takes those of its own tasks."""
    return f"{NODES_GROUP}/{store}" if store else NODES_GROUP


QUEUES = "duly:queues"
"""Set of the queue names that any node has published to, so that a new node finds their reports."""

ALIVE = "duly:alive"
"""Sentinel: gone when Redis lost its data (FLUSHALL, a restart or failover without data)."""

PROBE = "duly:probe"
"""Written to find out whether Redis takes writes."""


def alive_on(tag: str) -> str:
    """The same of one primary of a Redis Cluster: `ALIVE` with a hash tag whose keys it has."""
    return f"{ALIVE}:{{{tag}}}"


def probe_on(tag: str) -> str:
    """`PROBE` of one primary of a Redis Cluster."""
    return f"{PROBE}:{{{tag}}}"


MARK = "duly mark "
"""Beginning of the name of a consumer that no worker is: it goes with the group if that is lost."""

WAITING_TTL_MS = 1_000
"""A node that has not said for so long that tasks wait with it holds up no other."""

LIVENESS_TTL_MS = 10_000
"""A worker whose liveness key is older than this is lost."""

LIVENESS_EVERY_S = 3.0
"""How often a worker renews its liveness key: room for two lost renewals within the TTL."""


def tasks(queue: str) -> str:
    """Stream of dispatched tasks of `queue`."""
    return f"duly:{{{queue}}}:tasks"


def inflight(queue: str) -> str:
    """Hash task id -> token of what is dispatched and not yet recorded."""
    return f"duly:{{{queue}}}:inflight"


def entries(queue: str) -> str:
    """Hash task id -> stream entry id; the nodes' own, to find an entry without a scan."""
    return f"duly:{{{queue}}}:entries"


def waiting(queue: str) -> str:
    """Hash node id -> what it says of its due tasks that wait for room; gone when none wait."""
    return f"duly:{{{queue}}}:waiting"


def rate(queue: str) -> str:
    """Hash of how much of the queue's rate is used up; gone once nothing of it is."""
    return f"duly:{{{queue}}}:rate"


def waiting_for_rate(queue: str) -> str:
    """Hash node id -> what it says of its due tasks that wait for the queue's rate."""
    return f"duly:{{{queue}}}:waiting-for-rate"


def reports(queue: str) -> str:
    """Stream of outcomes that workers report."""
    return f"duly:{{{queue}}}:reports"


def worker(worker_id: str) -> str:
    """Liveness of one worker: JSON, expires after `LIVENESS_TTL_MS`."""
    return f"duly:workers:{worker_id}"


def control(worker_id: str) -> str:
    """Pub/sub channel to one worker."""
    return f"duly:control:{worker_id}"


def wake(node_id: str) -> str:
    """Pub/sub channel to one node: tasks in its slots that fall due within its horizon."""
    return f"duly:wake:{node_id}"


EVENTS = "duly:events"
"""Pub/sub channel: what happens to tasks, told while somebody looks on."""


def lease(slot: int) -> str:
    """Lease of one slot; the value is the holder's random identity."""
    return f"duly:lease:{slot}"


LEASE_SINCE = "duly:lease:since"
"""On each lease server: its run id, and since when this run has kept its data, ms on its own clock."""

QUEUES_CHANGED = "duly:queues:changed"
"""Pub/sub channel: an operator changed what is set of a queue. May get lost: it is read again anyway."""

NODES_SEEN = "duly:{nodes}:seen"
"""Sorted set node id -> when it last beat, ms on Redis's clock."""

NODES_BEATS = "duly:{nodes}:beats"
"""Hash node id -> how often it has beaten since its process began."""

NODES_CHANGED = "duly:{nodes}:changed"
"""Pub/sub channel: slots became free, look around now. May get lost: the next round looks anyway."""

NODES_GONE = "duly:{nodes}:gone"
"""Sorted set node id -> when a node that has vanished last beat; the last thousand of them."""

NODES_FREED = "duly:{nodes}:freed"
"""Pub/sub channel: concurrency keys that ended attempts held. May get lost: who waits looks anyway."""

NODES_INFO = "duly:{nodes}:info"
"""Hash node id -> JSON, what the node says of itself."""


def statistics(minute: int) -> str:
    """Hash node id -> its figures of one minute since the epoch; they share a hash tag."""
    return f"duly:{{nodes}}:stats:{minute}"


STATISTICS_TTL_MS = 65 * 60_000
"""How long a minute's figures are kept after the last of them was written."""
