"""Which node should own which slot: a pure function of the set of live nodes.

Rendezvous hashing (Thaler and Ravishankar, 1998) with bounded load (Mirrokni, Thorup and
Zadimoghaddam, 2018). Every (slot, node) pair has a score that anyone can compute; pairs are granted
from the highest score down, a slot to one node, a node only its share: ⌊slots / nodes⌋, and one more
for as many nodes as there are slots left over. The same live set gives the same answer on every
node, and a join or a leave moves little more than it must.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache


def assign(slots: Iterable[int], nodes: Iterable[str]) -> dict[int, str]:
    """Slot -> node; empty if there are no nodes."""
    return dict(_assign(tuple(sorted(slots)), tuple(sorted(set(nodes)))))


@lru_cache(maxsize=8)
def _assign(slots: tuple[int, ...], nodes: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    if not nodes:
        return ()
    share, left_over = divmod(len(slots), len(nodes))
    scores = [(_score(slot, node), slot, node) for node in nodes for slot in slots]
    load = dict.fromkeys(nodes, 0)
    owners: dict[int, str] = {}
    for _, slot, node in sorted(scores, reverse=True):
        if slot in owners or load[node] > share or (load[node] == share and not left_over):
            continue
        left_over -= load[node] == share
        load[node] += 1
        owners[slot] = node
    return tuple(owners.items())


def _score(slot: int, node: str) -> bytes:
    return hashlib.blake2b(f"{slot}:{node}".encode(), digest_size=8).digest()
