"""A reminder by email in 30 minutes.

The worker:      duly up --worker reminder:worker
The submission:  python reminder.py ada@example.org "Call Grace"
"""

import argparse
import os
import smtplib
from datetime import timedelta
from email.message import EmailMessage

import duly

worker = duly.Worker(os.environ.get("DULY_REDIS_URL", "redis://127.0.0.1:6379/0"))


@worker.task("reminder.email")
def remind(ctx: duly.Context, payload: dict[str, str]) -> str:
    """Send it by the server of SMTP_HOST; without one, show it."""
    email = EmailMessage()
    email["From"] = "reminders@example.org"
    email["To"] = payload["to"]
    email["Subject"] = f"Reminder: {payload['text']}"
    # The same for every attempt: mail programs show a message with a known id once.
    email["Message-ID"] = f"<{ctx.headers()['Idempotency-Key']}@example.org>"
    email.set_content(f"You wanted to be reminded: {payload['text']}\n")
    host = os.environ.get("SMTP_HOST")
    if host is None:
        print(email, flush=True)
        return "shown"
    with smtplib.SMTP(host, int(os.environ.get("SMTP_PORT", "25")), timeout=30) as server:
        server.send_message(email)
    return "sent"


def main() -> None:
    parser = argparse.ArgumentParser(description="Submit a reminder.")
    parser.add_argument("to", help="address")
    parser.add_argument("text", help="what of")
    parser.add_argument("--minutes", type=float, default=30, help="how long from now (30)")
    args = parser.parse_args()
    with duly.SyncClient(os.environ.get("DULY_URL", "http://127.0.0.1:8080")) as client:
        task = client.submit(
            "reminder.email",
            {"to": args.to, "text": args.text},
            delay=timedelta(minutes=args.minutes),
            max_retries=10,  # a mail server may be away for a while
        )
        print(f"{task.id} will remind {args.to} at {task.next_run_at:%H:%M:%S} UTC")


if __name__ == "__main__":
    main()
