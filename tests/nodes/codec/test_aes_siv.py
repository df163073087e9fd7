"""AES-SIV as a codec."""

import json
import pickle
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duly
from duly.contrib.aes_siv import AesSiv
from duly.nodes import exact_json
from duly.nodes.codec import Codec
from duly.nodes.codec.envelope import opened, opened_json, sealed, sealed_json

OLD, NEW = AesSiv.new_key(), AesSiv.new_key()
before = AesSiv({"old": OLD}, current="old")
ready = AesSiv({"old": OLD, "new": NEW}, current="old")
after = AesSiv({"old": OLD, "new": NEW}, current="new")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab$"), inner),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_a_value_comes_back_from_json_with_nothing_of_it_to_be_seen(value: Any) -> None:
    wire = json.loads(json.dumps(sealed_as_json(after, value)))
    assert wire.keys() == {"$encrypted"}
    assert wire["$encrypted"].keys() == {"key", "data"}
    assert wire["$encrypted"]["key"] == "new"
    assert opened(after, wire) == value
    assert len(b64decode(wire["$encrypted"]["data"])) == 16 + len(plain(after, value))


def sealed_as_json(codec: Codec, value: Any) -> Any:
    return json.loads(exact_json.encode(sealed(codec, value)))


def plain(codec: Codec, value: Any) -> bytes:
    return opened_json(
        codec, json.dumps(sealed_as_json(codec, value), separators=(",", ":")).encode()
    )


@given(st.dictionaries(st.text("abc"), st.integers(), min_size=2))
def test_equal_values_are_equal_when_encrypted_whatever_their_order(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert (
        sealed(after, value)
        == sealed(after, turned)
        == sealed(pickle.loads(pickle.dumps(after)), value)
    )


@given(st.data())
def test_a_bit_that_is_changed_is_seen(data: Any) -> None:
    key, made = after.encode(b'{"to":"a@example.org"}')
    at = data.draw(st.integers(0, len(made) * 8 - 1))
    changed = bytearray(made)
    changed[at // 8] ^= 1 << at % 8
    with pytest.raises(duly.Tampered):
        after.decode(key, bytes(changed))
    with pytest.raises(duly.Tampered):
        after.decode(key, made[: data.draw(st.integers(0, len(made) - 1))])


def test_a_rotation_in_two_steps_leaves_nobody_without_a_key() -> None:
    for writer in (before, ready):
        for reader in (before, ready, after):
            assert opened_json(reader, sealed_json(writer, b"1")) == b"1"
    for reader in (ready, after):
        assert opened_json(reader, sealed_json(after, b"1")) == b"1"
    with pytest.raises(duly.UnknownKey, match="'new', which is not here") as caught:
        opened_json(before, sealed_json(after, b"1"))
    assert (caught.value.key, pickle.loads(pickle.dumps(caught.value)).key) == ("new", "new")


def test_a_key_opens_only_what_was_made_under_its_own_id() -> None:
    key, made = after.encode(b"1")
    renamed = AesSiv({"other": NEW}, current="other")
    with pytest.raises(duly.Tampered):
        renamed.decode("other", made)
    with pytest.raises(duly.Tampered, match="another key 'new'"):
        AesSiv({"new": OLD}, current="new").decode(key, made)


def test_its_keys_are_not_shown() -> None:
    text = repr(after)
    assert text == "<AesSiv current='new' keys=['new', 'old']>"


@pytest.mark.parametrize(
    ("keys", "current", "said"),
    [
        ({"a": OLD}, "b", "there is no key 'b'"),
        ({}, "", "there is no key ''"),
        ({"a": b"x" * 32}, "a", "key 'a' has 32 bytes, not 64"),
        ({"a": "?"}, "a", "key 'a' is not base64"),
        ({"a": "é"}, "a", "key 'a' is not base64"),
        ({"": OLD}, "", "1 to 64 characters"),
        ({"k" * 65: OLD}, "k" * 65, "1 to 64 characters"),
    ],
)
def test_wrong_keys_are_refused_by_name(keys: dict[str, Any], current: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        AesSiv(keys, current=current)
    assert OLD not in str(caught.value)
