"""The chaos test: a whole cluster of real processes, faults on a seeded schedule, and a checker.

    load ──HTTP──▶ nodes (node.py) ◀──links──▶ PostgreSQL pair, Redis, lease servers
                                                   ▲
                                 workers (sdk_worker.py, hand_worker.py) ──▶ their own logs

Reading order:

    work        what the tasks are, and what a handler does with one
    journal     the logs: one line a record, appended in one write
    evidence    all that was written down, and what is in the store at the end
    rules       what must hold of it; checker asks every rule
    figures     how late, how many, how long after each kind of fault
    load        submits, cancels and changes, and writes down what was answered
    proxy       the links between the parts: slow, cut, half open
    cluster     the processes
    schedule    which fault comes when; faults inflicts and heals them
    node        a node whose wall clock can be moved; mutations plants bugs in it
    run         one run from start to verdict; report tells of it

The checker (evidence, rules, checker) imports nothing of duly: it must not share its mistakes.
"""
