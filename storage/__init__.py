"""Everything that outlives a process: PostgreSQL, the truth, and Redis, the conveyor.

errors      what can go wrong with a store
database    pools, bounded and never-cancelled statements
queries     sql/*.sql by name: no SQL anywhere else
migrate     migrations/*.sql, safe when several nodes start at once
ids         time-ordered task ids
tasks       what clients do: submit, get, list, cancel, patch, retry
claims      the fenced writes: claim, start, complete, settle
slots       who owns what, and what an owner reads
explain     what the store knows of why a task has not run
upkeep      the server's clock, partitions, retention
keys        every Redis key
redis       calls with time limits, and lua/*.lua by name
channel     listening on a pub/sub channel
members     the live nodes
leases      slot leases
streams     the nodes' side of the conveyor: publish, find, take out; its parts are
            known_queues (names and groups), reports (what workers said), crews (who works),
            signals (messages to nodes and workers), over the connections of node_link
sight       what people ask Redis: who works, where a task is
conveyor    the workers' side of the conveyor
"""
