"""A webhook that is tried again every hour until it is taken, for a day: `python webhook.py URL`.

The worker is one of Duly's own: duly up --worker duly.contrib.http
"""

import argparse
import os

import duly


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell a URL of an event.")
    parser.add_argument("url", help="who is told")
    parser.add_argument("--every", type=float, default=3_600, help="seconds between tries (3600)")
    parser.add_argument("--tries", type=int, default=24, help="how many (24)")
    args = parser.parse_args()
    with duly.SyncClient(os.environ.get("DULY_URL", "http://127.0.0.1:8080")) as client:
        task = client.submit(
            "http",
            {"url": args.url, "json": {"event": "order.paid", "order": 7}, "deadline": 10},
            max_retries=args.tries - 1,
            backoff={"kind": "fixed", "delay": args.every, "jitter": 0},
        )
        print(task.id)


if __name__ == "__main__":
    main()
