"""Takes orders, each with its task in one transaction; some of them are thought better of."""

import asyncio
import json
import sys
from pathlib import Path

import asyncpg

import duly

ORDERS = 50


async def take(connection: asyncpg.Connection, number: int) -> None:
    """An order, and the task to ship it. Of every fifth one the transaction is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("insert into shop.orders (number) values ($1)", number)
    await duly.submit_in(connection, "order.ship", {"order": number})
    await (transaction.rollback() if number % 5 == 0 else transaction.commit())


async def main(urls: dict[str, str]) -> None:
    connection = await asyncpg.connect(urls["database"])
    await connection.execute(
        "drop schema if exists shop cascade; create schema shop; "
        "create table shop.orders (number int primary key, shipped int not null default 0)"
    )
    for number in range(1, ORDERS + 1):
        await take(connection, number)
    count = await connection.fetchval("select count(*) from shop.orders")
    print(f"{ORDERS} orders were taken, {count} of them committed")
    while True:
        if not await connection.fetchval("select count(*) from shop.orders where shipped = 0"):
            break
        await asyncio.sleep(0.1)
    often = await connection.fetchval("select max(shipped) from shop.orders")
    print(f"{count} orders are shipped, none of them more than {often} time")
    await connection.close()


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
