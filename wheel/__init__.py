"""Time, pure: no I/O, no task, no lock, and no clock that was not handed in.

Every file here can be read and tested alone; nothing imports the rest of Duly. Instants are
integer microseconds since the epoch (`_us`) on the cluster's clock, durations seconds (`_s`).

    wheel.py       the hierarchical timing wheel, explained with a worked example
    level.py       one level of it: a ring of slots and the bitmask of the occupied ones
    due_queue.py   what is due and not yet taken, in due order
    schedule.py    periodic schedules: their occurrences
    schedule_fields.py  what is written and stored of them, each field checked
    cron.py        when a cron expression fires in a time zone, across changes of its clock
    cron_fields.py the syntax of cron expressions
    wall_times.py  the calendar: wall-clock times that an expression matches
    zones.py       time zones from the tzdata package, as pieces of constant offset
    backoff.py     the wait before a retry
    durations.py   ISO 8601 durations, RFC 3339 times, datetime to microseconds and back
    clock.py       the cluster's clock: monotonic time plus the measured offset to PostgreSQL
"""
