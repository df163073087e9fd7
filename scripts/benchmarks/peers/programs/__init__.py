"""What runs in the environments of the peers: `python -m benchmarks.peers.programs NAME VERB`.

    install   make the peer's tables in the empty database BENCH_DATABASE_URL
    submit    read an order (JSON) from standard input, submit its tasks, and write to standard output
              how many seconds it took and when the peer has each task due
    work      take tasks until SIGTERM, or until standard input closes; handlers note their start in the folder BENCH_NOTES

An order has `dues` (seconds since 1970) or `delays` (seconds from now), `single` (one task a call, 16
callers, where the peer allows for it), `number`, of every task (default: each has its own), and `noted`:
whether handlers note their start (the default), or do nothing.

Each `NAME_program` has a `main(verb)`.
"""
