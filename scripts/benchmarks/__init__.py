"""What `scripts/bench` runs. See docs/performance.md and docs/benchmarks.md.

    scenarios/    each measures one thing on a `rig`: a node or three, and workers, as processes
    peers/        the same work given to other schedulers, in turns, through one small interface
    figures.py    medians, shares, ratios     records.py   the JSON lines and the tables
    picture.py    records to charts           draw.py      charts to an image

Those with a script of their own:

    lists.py, size.py   a store with millions of tasks     scripts/bench_lists, scripts/bench_size
    lifecycles.py       millions through one store         scripts/bench_lifecycles
    spike.py            millions due within a minute       scripts/bench_spike
    soak.py             all kinds of tasks, for long       scripts/soak
"""
