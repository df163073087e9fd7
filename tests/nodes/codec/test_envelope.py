"""What stands for an encoded value, and what becomes of one that cannot be read."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import duly
from duly.nodes import exact_json
from duly.nodes.codec import task
from duly.nodes.codec.envelope import (
    is_sealed,
    opened,
    opened_json,
    sealed,
    sealed_error,
    sealed_json,
    shown_error,
)
from duly.storage.conveyor import Entry


class Backwards:
    """A codec that hides nothing."""

    def __init__(self, *, accepts_plain: bool = False, fails: Exception | None = None) -> None:
        self.accepts_plain = accepts_plain
        self.fails = fails

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        if self.fails is not None:
            raise self.fails
        return "back", value[::-1]

    def decode(self, key: str, data: bytes, /) -> bytes:
        if self.fails is not None:
            raise self.fails
        return data[::-1]


codec = Backwards()


def test_it_is_json_with_the_key_in_clear() -> None:
    data = sealed_json(codec, b'{"a":1}')
    assert json.loads(data) == {"$encrypted": {"key": "back", "data": "fTE6ImEiew=="}}
    assert is_sealed(data)
    assert is_sealed(b'{"$encrypted": {"key": "back", "data": ""}}')  # as JSONB writes it
    assert not is_sealed(b'{"a":1}')
    assert opened_json(codec, data) == b'{"a":1}'


def test_what_is_plain_is_taken_only_if_the_codec_says_so() -> None:
    for plain in (b"null", b"5", b'{"encrypted":1}'):
        assert opened_json(Backwards(accepts_plain=True), plain) == plain
        with pytest.raises(duly.NotEncrypted, match=r"^not encrypted$"):
            opened_json(codec, plain)
    assert opened(Backwards(accepts_plain=True), {"a": 1}) == {"a": 1}
    assert isinstance(opened(codec, {"a": 1}).error, duly.NotEncrypted)
    assert opened(codec, None) is None


@pytest.mark.parametrize("plain_too", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        {"$encrypted": 5},
        {"$encrypted": {"key": "k"}},
        {"$encrypted": {"key": 1, "data": ""}},
        {"$encrypted": {"key": "k", "data": "no base64"}},
        {"$encrypted": {"key": "k", "data": "", "more": 1}},
        {"$encrypted": {"key": "k", "data": ""}, "more": 1},
        {"$encrypted": {"key": "k", "data": "e30x"}},  # no JSON when it is opened
    ],
)
def test_a_wrong_envelope_is_never_taken_for_a_value(wrong: Any, plain_too: bool) -> None:
    lax = Backwards(accepts_plain=plain_too)
    with pytest.raises(duly.CodecError):
        opened_json(lax, json.dumps(wrong).encode())
    assert isinstance(opened(lax, wrong).error, duly.CodecError)


@pytest.mark.parametrize(
    "made", [b"[" * 100_000 + b"]" * 100_000, b'"\xff"', b"1e99999999999999999999"]
)
def test_what_only_looks_like_json_is_unreadable(made: bytes) -> None:
    wire = json.loads(sealed_json(codec, made))
    assert isinstance(opened(codec, wire).error, duly.CodecError)
    assert isinstance(shown_error(codec, {"type": "E", **wire})["message"], duly.Unreadable)


def test_equal_objects_are_equal_bytes_also_if_their_names_are_no_text() -> None:
    one = sealed(codec, {2: {"b": 1, "a": Decimal("1.25")}, 1: {3, 1, 2}})
    assert one == sealed(codec, {"1": [1, 2, 3], "2": {"a": Decimal("1.25"), "b": 1}})
    with pytest.raises(TypeError, match="object"):
        sealed(codec, {"a": object()})


def test_what_a_codec_raises_is_told_without_its_text() -> None:
    broken = Backwards(fails=RuntimeError("secret"))
    with pytest.raises(duly.CodecError, match=r"^the codec raised RuntimeError$"):
        sealed_json(broken, b"1")
    with pytest.raises(duly.CodecError, match=r"^the codec raised RuntimeError$"):
        opened_json(broken, sealed_json(codec, b"1"))


@pytest.mark.parametrize("made", [("k", "text"), (b"k", b""), None])
def test_a_codec_that_encodes_to_something_else_is_found_before_anything_is_sent(made: Any) -> None:
    class Wrong(Backwards):
        def encode(self, value: bytes, /) -> tuple[str, bytes]:
            answer: tuple[str, bytes] = made
            return answer

    with pytest.raises(duly.CodecError, match="the codec"):
        sealed(Wrong(), 5)


def test_nobody_uses_an_unreadable_value_by_mistake() -> None:
    value: Any = opened(Backwards(fails=duly.UnknownKey("k")), json.loads(sealed_json(codec, b"1")))
    assert isinstance(value, duly.Unreadable)
    assert repr(value) == "<Unreadable: encrypted with key 'k', which is not here>"
    uses: list[Callable[[], object]] = [
        lambda: value["a"], lambda: bool(value), lambda: list(value), lambda: int(value),
        lambda: "a" in value, lambda: len(value), lambda: value.get("a"), lambda: value.items(),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(duly.UnknownKey):
            use()
    with pytest.raises(TypeError):
        exact_json.encode(value)


def test_of_an_error_the_type_is_seen() -> None:
    wire = json.loads(sealed_error(codec, "ValueError", {"message": "for a@example.org"}))
    assert wire["type"] == "ValueError"
    assert wire.keys() == {"type", "$encrypted"}
    assert shown_error(codec, wire) == {"type": "ValueError", "message": "for a@example.org"}
    by_a_node = {"type": "lost", "message": "its worker is gone"}
    assert shown_error(codec, by_a_node) == by_a_node
    assert shown_error(codec, None) is None
    unread = shown_error(Backwards(fails=duly.Tampered("no")), wire)
    assert unread["type"] == "ValueError"
    assert isinstance(unread["message"], duly.Unreadable)


def test_an_entry_is_read_with_what_it_follows() -> None:
    parent = {
        "id": "a", "status": "completed", "result": json.loads(sealed_json(codec, b"[1.50]")),
        "error": json.loads(sealed_error(codec, "E", {"message": "m"})),
    }  # fmt: skip
    entry = Entry("q", b"1-1", "a", 1, "t", sealed_json(codec, b"5"), 0, 1, 60.0, False)
    assert not task.is_readable(None, entry)
    opened_entry = task.opened(codec, with_parent(entry, parent))
    assert opened_entry.payload == b"5"
    assert json.loads(opened_entry.parent or b"") == {
        "id": "a", "status": "completed", "result": [1.5], "error": {"type": "E", "message": "m"},
    }  # fmt: skip
    with pytest.raises(duly.NotEncrypted):
        task.opened(codec, with_parent(entry, {**parent, "result": 5}))
    nul = {"type": "E", **json.loads(sealed_json(codec, b'{"message":"\\u0000"}'))}
    with pytest.raises(duly.CodecError, match="is not an error"):
        task.opened(codec, with_parent(entry, {"result": None, "error": nul}))
    failed = task.opened(codec, with_parent(entry, {"result": None, "error": {"type": "lost"}}))
    assert json.loads(failed.parent or b"") == {"result": None, "error": {"type": "lost"}}
    with pytest.raises(duly.CodecError, match="encrypted, and there is no codec"):
        task.opened(None, entry)


def with_parent(entry: Entry, parent: Any) -> Entry:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return Entry(**{**fields, "parent": json.dumps(parent).encode()})
