"""Every peer by name."""

from benchmarks.peers.duly_peer import DulyPeer
from benchmarks.peers.peer import Peer, Traits
from benchmarks.peers.process_peer import ProcessPeer

OURS: Peer = DulyPeer()

_PGQUEUER = (
    ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "select created as at from pgqueuer_log where status = 'successful'",
)

PEERS: dict[str, Peer] = {
    peer.traits.name: peer
    for peer in (
        ProcessPeer(
            Traits("pgqueuer", "every outcome, in PostgreSQL", submits_per_s=4_000), *_PGQUEUER
        ),
        ProcessPeer(  # with the batches that it takes unless it is told otherwise
            Traits("pgqueuer_default", "every outcome, in PostgreSQL", submits_per_s=4_000),
            *_PGQUEUER,
            program="pgqueuer",
            settings={"BENCH_BATCH_SIZE": "10"},
        ),
        ProcessPeer(
            Traits(
                "procrastinate", "every outcome, in PostgreSQL", submits_per_s=2_000, drains=2_000
            ),
            ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
            "select at from procrastinate_events where type = 'succeeded'",
        ),
        ProcessPeer(
            Traits(
                "celery",
                "nothing: tasks are in Redis only, and gone once taken",
                submits_per_s=400,
                drains=5_000,
                keeps_outcomes=False,
            ),
            ("celery[redis]==5.7.0", "redis[hiredis]==8.1.0"),
        ),
    )
}
