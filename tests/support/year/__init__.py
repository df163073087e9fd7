"""A year of many schedules in virtual time, checked occurrence by occurrence against the oracle.

    schedules   what is drawn, and when it must fire by the oracle
    judge       watches what is recorded: each occurrence once, in order
    node        the firing path of a node, of the product's own parts but for the idle loops
    world       nodes that die and pause, attempts that fail and overrun, outages, a clock

What decides is the product's own: the API's reading of a submission, the statements (on the
simulated store), claims, `recording.record` with its decisions, the actor that catches up, pauses
and runs at once. What would run all the time without doing anything for a year is not: leases,
streams, the wheel and the sweeps every half second are a few lines each, and look once an hour.
"""
