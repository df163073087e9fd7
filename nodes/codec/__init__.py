"""Payloads that only clients and workers can read: the servers are given what a codec makes of them.

codec.py     what a codec is
envelope.py  how its work is written as JSON, and read again
task.py      what a worker is sent: the payload, and what it follows
errors.py    why something cannot be read
"""

from duly.nodes.codec.codec import Codec
from duly.nodes.codec.errors import CodecError, NotEncrypted, Tampered, UnknownKey, Unreadable

__all__ = ["Codec", "CodecError", "NotEncrypted", "Tampered", "UnknownKey", "Unreadable"]
