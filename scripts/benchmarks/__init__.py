"""What `scripts/bench` runs. See docs/performance.md and docs/benchmarks.md.

    scenarios/    each measures one thing on a `rig`: a node or three, and workers, as processes
    peers/        the same work given to other schedulers, in turns, through one small interface
    figures.py    medians, shares, ratios     records.py   the JSON lines and the tables
    picture.py    records to charts           draw.py      charts to an image

`lists.py` measures a store with millions of tasks and is run by `scripts/bench_lists`.
"""
