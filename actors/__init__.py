"""The actors of a node, each the only one to touch its state. Data flow in reading order:

    clock       measures the cluster's clock against PostgreSQL
    rehearsal   opens the connections that the first burst wants
    meters/     what the node measures of its work; the actor `statistics` writes it to Redis
    upkeep      partitions, retention, leftovers
    assignment  which node should own which slot (pure)
    leases      holds slots: leases in Redis, epochs in PostgreSQL
    submitter   joins submissions that arrive together into one insert
    prefetcher  reads what falls due in this node's slots, page by page
    listener    hears of near tasks that other nodes accepted
    ticker      owns the timing wheel
    line        how much of a queue a node may publish now: the window, and the other nodes' turns
    dispatcher  claims what is due and publishes it (firing, claiming), never more than the workers will soon fetch
    recorder    records what became of each attempt
    reaper      finds attempts that nobody will report

messages.py has every message, context.py what each actor is given, runtime/ the machinery below.
"""
