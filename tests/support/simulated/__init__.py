"""A whole cluster in one thread, in virtual time, from one seed. See docs/simulation.md.

loop             an event loop whose clock jumps, whose order is drawn, and which can pause a process
scopes           the same order of cancellations each time
faults, link     what happens to a call on its way
store            PostgreSQL in memory; what its statements do: statements, task_statements,
                 course_statements, queue_statements
database         a node's access to it
redis_data       what Redis keeps; redis_commands, redis_lua: what is done to it
redis_server     a server of it; redis_client: a process's access
nodes, workers, client   the processes
plan             what a seed makes of a world
ledger           what really happened, and the rules that it must obey
world            one seed from start to verdict
bugs             planted bugs, which the rules must find
simulate         the command
statement_draws, command_draws   random calls, for the tests that compare with real servers
"""
