"""The orders that programs take. Nothing but the standard library is needed here."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

BATCH = 1000
CALLERS = 16


class Order(NamedTuple):
    """What to submit."""

    dues: list[float]
    numbers: list[int]
    single: bool
    noted: bool = True

    def batches(self) -> Iterator[tuple[Sequence[float], Sequence[int]]]:
        """Due times and numbers, 1,000 at a time."""
        for at in range(0, len(self.dues), BATCH):
            yield self.dues[at : at + BATCH], self.numbers[at : at + BATCH]


def read_order() -> Order:
    """From standard input."""
    order = json.load(sys.stdin)
    now = time.time()
    dues = order["dues"] if "dues" in order else [now + delay for delay in order["delays"]]
    same = order.get("number")
    numbers = list(range(len(dues))) if same is None else [same] * len(dues)
    return Order(dues, numbers, order.get("single", False), order.get("noted", True))


def answer(seconds: float, dues: Sequence[float]) -> None:
    """To standard output."""
    json.dump({"seconds": seconds, "dues": list(dues)}, sys.stdout)


async def one_by_one(order: Order, submit: Callable[[float, int], Awaitable[object]]) -> None:
    """Call `submit` for each task, from 16 callers that each wait for their answer."""
    left = iter(zip(order.dues, order.numbers, strict=True))

    async def caller() -> None:
        for due, number in left:
            await submit(due, number)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
