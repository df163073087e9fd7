"""What a node measures of its own work, and how the figures of all nodes become one.

    histogram   log-linear buckets: merged exactly, percentiles within a stated error (pure)
    names       bounded sets of label values (pure)
    meters      what the actors note, in memory
    minutes     the same by minute, as it is kept in Redis and merged (pure)
    cluster     the last hour of all nodes, read back
    statistics  the actor that writes a node's minutes

An actor notes a whole batch at a time; nothing here waits for anything on the way of a task.
"""
