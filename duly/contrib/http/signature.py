"""The header by which a receiver knows that a request is from here, and when it was sent.

    Duly-Signature: t=1790000000,v1=5257a869…

`t`: when it was sent, seconds since the epoch. `v1`: HMAC-SHA256 in hex, by the secret, over
`{t}.{Idempotency-Key}.{body}`; one for each secret, so that a secret can be replaced without a gap.
The receiver accepts a request if one of them is right and `t` is not old.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

HEADER: Final = "Duly-Signature"


def sign(secrets: Sequence[str], key: str, body: bytes, now_s: int) -> str:
    """The header's value. `key`: the value of the header Idempotency-Key; `now_s`: the time."""
    signed = b"%d.%s.%s" % (now_s, key.encode(), body)
    digests = (hmac.new(secret.encode(), signed, hashlib.sha256) for secret in secrets)
    return ",".join((f"t={now_s}", *(f"v1={digest.hexdigest()}" for digest in digests)))
