"""What runs in the environments of the peers: `python -m benchmarks.peers.programs NAME VERB`.

    install   make the peer's tables in the empty database BENCH_DATABASE_URL
    submit    read an order (JSON) from standard input, submit its tasks, and write to standard output
              how many seconds it took and when the peer has each task due
    work      take tasks until SIGTERM, or until standard input closes; each handler notes its start in the folder BENCH_NOTES

An order has `dues` (seconds since 1970) or `delays` (seconds from now), `single` (one task a call, 16
callers, where the peer allows for it) and `number`, of every task (default: each has its own).

Each `NAME_program` has a `main(verb)`.
"""
