"""The duly command. Each file has the sub-commands of one kind.

parser    the command line itself
serve     node, worker, migrate
up        up: embedded servers, nodes and a worker
demo      demo: up, with sample tasks
env       where a running up is
children  processes that up looks after
stopping  their signals
settings  settings as flags
values    checked values of options
fire_times next: when a schedule fires
tokens    token new
tasks     submit, get, list, cancel, retry, runs
archive   days of finished tasks and runs in files
cluster   explain, nodes, workers
conformance   try a worker by the protocol
importing     import crontab
declared      apply, export
simulating    simulate
crontab_tasks what the jobs of a crontab are as tasks
local_zone    the machine's time zone
"""

from duly.nodes.cli.parser import main

__all__ = ["main"]
