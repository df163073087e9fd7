"""What a worker is sent, made readable before a handler sees it."""

from typing import Any, Final

import msgspec

from duly.nodes import exact_json
from duly.nodes.codec import envelope
from duly.nodes.codec.codec import Codec
from duly.nodes.codec.errors import CodecError
from duly.storage.conveyor import Entry

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ERROR: Final[exact_json.ExactDecoder[Any]] = exact_json.ExactDecoder()


def is_readable(codec: Codec | None, entry: Entry) -> bool:
    """Whether it can be given to a handler as it is: there is no codec, and none is needed."""
    return codec is None and not envelope.is_sealed(entry.payload)


def opened(codec: Codec | None, entry: Entry) -> Entry:
    """The entry with payload and parent in clear; raises CodecError."""
    payload = envelope.opened_json(codec, entry.payload)
    parent = entry.parent
    if parent is not None and codec is not None:
        parent = _opened_parent(codec, parent)
    return msgspec.structs.replace(entry, payload=payload, parent=parent)


def _opened_parent(codec: Codec, data: bytes) -> bytes:
    fields = _FIELDS.decode(data)
    result, error = fields.get("result"), fields.get("error")
    if result is not None and bytes(result) != b"null":
        fields["result"] = msgspec.Raw(envelope.opened_json(codec, bytes(result)))
    if error is not None:
        said = envelope.opened_error(codec, _ERROR.decode(bytes(error)))
        try:
            fields["error"] = msgspec.Raw(exact_json.encode(said))
        except ValueError:
            raise CodecError("what was encoded is not an error") from None
    return msgspec.json.encode(fields)
