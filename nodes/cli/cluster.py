"""duly explain, nodes, workers: why a task has not run, and who is there to run it."""

import argparse
from typing import Any

from duly.nodes import exact_json
from duly.nodes.cli.tasks import api_options, guarded
from duly.nodes.client import LiveNode, LiveWorker, SyncClient


def add_to(commands: Any) -> None:
    """Add these sub-commands."""
    api = api_options()
    explain = commands.add_parser("explain", help="say why a task has not run", parents=[api])
    explain.add_argument("id", help="the task's id")
    explain.set_defaults(run=guarded(_explain))
    nodes = commands.add_parser("nodes", help="list the live nodes", parents=[api])
    nodes.set_defaults(run=guarded(_nodes))
    workers = commands.add_parser("workers", help="list the live workers", parents=[api])
    workers.set_defaults(run=guarded(_workers))


def _explain(client: SyncClient, args: argparse.Namespace) -> None:
    found = client.explain(args.id)
    if args.json:
        print(exact_json.encode(found).decode())
        return
    print(f"{found.task_id}  {found.status}")
    for reason in found.reasons:
        print(f"{reason.get('code', '?')}: {reason.get('message', '')}")


def _nodes(client: SyncClient, args: argparse.Namespace) -> None:
    for node in client.nodes():
        print(exact_json.encode(node).decode() if args.json else _node_line(node))


def _node_line(node: LiveNode) -> str:
    words = [node.id, f"{node.host}:{node.pid}", f"{node.slots} slots"]
    if node.wheel_entries is not None:
        words.append(f"{node.wheel_entries} in the wheel")
    if node.ready_entries is not None:
        words.append(f"{node.ready_entries} waiting")
    if node.version is not None:
        words.append(f"duly {node.version}")
    words += [f"{name} FAILS" for name in ("redis", "postgres") if getattr(node, name) is False]
    return "  ".join(words)


def _workers(client: SyncClient, args: argparse.Namespace) -> None:
    for worker in client.workers():
        print(exact_json.encode(worker).decode() if args.json else _worker_line(worker))


def _worker_line(worker: LiveWorker) -> str:
    words = [worker.id]
    if worker.host is not None:
        words.append(worker.host if worker.pid is None else f"{worker.host}:{worker.pid}")
    if worker.queues is not None:
        words.append(",".join(worker.queues))
    running = worker.held if worker.running is None else worker.running
    words.append(f"{running} of {worker.concurrency} running")
    if worker.sdk is not None:
        words.append(worker.sdk)
    if worker.seen_s is not None:
        words.append(f"seen {worker.seen_s:.1f} s ago")
    return "  ".join(words)
