"""Takes webhooks from Duly, if their signature is right. The first ones it refuses, to show the retries."""

import argparse
import hashlib
import hmac
import os
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


def is_from_duly(header: str, key: str, body: bytes, secret: str, within_s: int = 300) -> bool:
    """Check the headers Duly-Signature and Idempotency-Key of a request with this body."""
    parts = [part.partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not times[0].isdecimal() or abs(time.time() - int(times[0])) > within_s:
        return False
    signed = f"{times[0]}.{key}.".encode() + body
    wanted = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
    return any(
        hmac.compare_digest(wanted, value.encode()) for name, _, value in parts if name == "v1"
    )


class Receiver(BaseHTTPRequestHandler):
    """Answers 503 so many times, then 200 to what is signed with the secret."""

    away = 0
    done: set[str] = set()  # noqa: RUF012 - of the whole process; a real one would have a database

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Idempotency-Key", "")
        signature = self.headers.get("Duly-Signature", "")
        if not is_from_duly(signature, key, body, os.environ["DULY_HTTP_SECRETS"]):
            self.say(401, "the signature is wrong")
        elif Receiver.away > 0:
            Receiver.away -= 1
            self.say(503, "away")
        elif key in self.done:
            self.say(200, "known")
        else:
            self.done.add(key)
            self.say(200, f"took {body.decode()}")

    def say(self, status: int, text: str) -> None:
        """Answer, and show it."""
        print(status, text, flush=True)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Only what `say` shows."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive webhooks on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--away", type=int, default=2, help="how many are refused first (2)")
    args = parser.parse_args()
    Receiver.away = args.away
    with HTTPServer(("127.0.0.1", args.port), Receiver) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
