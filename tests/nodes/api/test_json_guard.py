"""What JSON is stored, and what is refused with the path to it."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.nodes.api.json_guard import (
    DEPTH_MAX,
    DIGITS_MAX,
    UnfitJsonError,
    check,
    deep_path,
    surrogate_path,
)


@pytest.mark.parametrize(
    "text",
    [
        "null", "true", "0", "-0", "-1.5", '""', "[]", "{}", '{"a":[1,{"b":null}]}',
        '"\\\\u0000"', '"\\ud83d\\ude00"', '"\\u2028"', '"\\u0001"', '"1e9999999"', '"[[[["',
        "1e400", "1E+400", "1e-400", "-1.5e-300", "73786976294838206464",
        "9" * DIGITS_MAX, "0." + "9" * (DIGITS_MAX - 1), f"1e{DIGITS_MAX - 1}",
        "[" * DEPTH_MAX + "]" * DEPTH_MAX, '{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX,
        "[" + "[]," * 1000 + "[]]", json.dumps("[" * 1000), json.dumps('\\"[' * 1000),
    ],
)  # fmt: skip
def test_fit(text: str) -> None:
    check(text.encode())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('"a\\u0000"', ""), ('{"a":["x","\\u0000"]}', "a[1]"), ('{"a":{"\\u0000":1}}', "a"),
        ('[{"b":"\\\\\\u0000"}]', "[0].b"), ('"\\ud800"', ""), ('["\\udc00\\ud800"]', "[0]"),
        ('{"\\udfff":1}', ""), ("9" * (DIGITS_MAX + 1), ""), ('{"n":1e1001}', "n"),
        ("[1e-1001]", "[0]"), ("1e99999999999999999999", ""), ("-1e-99999999999999999999", ""),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), ""),
        ("[" * 10_000 + "]" * 10_000, ""), ('{"a":' * 10_000 + "1" + "}" * 10_000, ""),
    ],
)  # fmt: skip
def test_unfit(text: str, path: str) -> None:
    with pytest.raises(UnfitJsonError) as caught:
        check(text.encode())
    assert caught.value.path == path


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20) | st.integers())
def test_every_number_of_reasonable_length_is_fit(number: Decimal | int) -> None:
    check(f'{{"n":[{number}]}}'.encode())


_json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(_json, st.booleans())
def test_every_value_without_nul_and_surrogates_is_fit(value: object, ascii_only: bool) -> None:
    check(json.dumps(value, ensure_ascii=ascii_only).encode())


@given(_json, st.sampled_from(["\0", "\ud800", "\udfff"]), st.booleans())
def test_one_bad_character_anywhere_is_found(value: object, bad: str, as_key: bool) -> None:
    inner = {f"x{bad}": 1} if as_key else [f"x{bad}"]
    with pytest.raises(UnfitJsonError) as caught:
        check(json.dumps({"v": value, "w": inner}).encode())
    assert caught.value.path == ("w" if as_key else "w[0]")


@given(st.integers(1, 300), st.integers(1, 300))
def test_depth_is_counted_exactly(depth: int, limit: int) -> None:
    body = b'{"a,:[":1,"f":%s%s}' % (b"[" * depth, b"]" * depth)
    assert deep_path(body, limit) == ("f" if depth + 1 > limit else None)


def test_the_field_of_what_is_too_deep() -> None:
    deep = "[" * 201 + "]" * 201
    assert deep_path(f'{{"type":"a","payload":{deep}}}'.encode()) == "payload"
    tasks = f'{{"tasks":[{{"type":"a"}},{{"t":[1,2],"payload":{deep}}}]}}'
    assert deep_path(tasks.encode()) == "tasks[1].payload"
    assert deep_path(deep.encode()) == ""
    assert deep_path(b'{"a":[1,{"b":[]}]}') is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (rb'{"type":"\ud800"}', "type"),
        (rb'{"tasks":[{"a":1},{"type":"\uDC00"}]}', "tasks[1].type"),
        (rb'"\ud800"', "payload"),
        (rb'{"type":"\ud83d\ude00"}', None),
        (rb'{"type":"\ud800"', None),
        (b'{"type":1}', None),
    ],
)
def test_the_path_of_a_surrogate(body: bytes, path: str | None) -> None:
    assert surrogate_path(body) == path
