"""What a URL says of a pooler."""

import pytest

from duly.storage.pooled import split

_HOST = "postgresql://u:p@h/db"


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("?pooler=transaction", ""),
        ("?pooler=transaction&sslmode=require", "?sslmode=require"),
        ("?sslmode=require&pooler=transaction", "?sslmode=require"),
        ("?a=1&pooler=transaction&b=2", "?a=1&b=2"),
    ],
)
def test_the_parameter_is_taken_out(query: str, rest: str) -> None:
    assert split(_HOST + query) == (_HOST + rest, True)


@pytest.mark.parametrize("query", ["", "?sslmode=require", "?other_pooler=session"])
def test_a_url_without_it_is_left_as_it_is(query: str) -> None:
    assert split(_HOST + query) == (_HOST + query, False)


def test_another_value_is_refused() -> None:
    with pytest.raises(ValueError, match="must be transaction"):
        split(_HOST + "?pooler=session")
