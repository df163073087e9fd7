"""A program of a user, run as a process of its own and killed: its orders and their tasks in one transaction.

`python shop_program.py DATABASE_URL ORDER [STOP]`: ORDER is `task_first` or `order_first`. STOP is `open` or
`committed`: one transaction, in which the program says that it has come so far, and goes no further. Without it,
one transaction after the other, each said when it has been committed.
"""

import sys
import time
import uuid

import psycopg

import duly


def buy(connection: psycopg.Connection, order: str) -> str:
    """An order with its task, in the open transaction; answers the number of the order."""
    number = str(uuid.uuid4())
    if order == "task_first":
        task_id = duly.submit_in_sync(connection, "order.ship", {"order": number})
    connection.execute("insert into orders (number) values (%s)", [number])
    if order == "order_first":
        task_id = duly.submit_in_sync(connection, "order.ship", {"order": number})
    connection.execute("update orders set task = %s where number = %s", [task_id, number])
    return number


def main(url: str, order: str, stop: str | None = None) -> None:
    with psycopg.connect(url, connect_timeout=30) as connection:
        while True:
            number = buy(connection, order)
            if stop == "open":
                print("open", number)
                time.sleep(3600)
            connection.commit()
            print("committed", number)
            if stop == "committed":
                time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
