"""Handlers for common work; none is there unless a worker registers it.

http    send an HTTP request; also a worker of its own
shell   run a command line, as cron does
group   a process that ends with all of its group
output  the end of what a process writes
"""
