"""What a codec is."""

from typing import Protocol


class Codec(Protocol):
    """Makes of a value, which is JSON, what the servers may see, and the value of that again.

    Called in the thread of whoever submits or runs a task, also in an event loop, and by several threads at once: so it must
    not block; fetch keys before. `duly.contrib.aes_siv.AesSiv` is one.
    """

    @property
    def accepts_plain(self) -> bool:
        """Whether values that are not encoded are taken as they are. False: each of them raises NotEncrypted."""

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        """Return the id of the key that was used, which everybody may see, and the encoded value.

        Equal values should give equal results: by them a node knows a submission that is repeated under its
        idempotency key or name.
        """

    def decode(self, key: str, data: bytes, /) -> bytes:
        """Return the value. Raises UnknownKey, or Tampered if the data is not what `encode` made with this key."""
