"""Reading statements from files: names, comments, parts."""

import pytest

from duly.storage.queries import parse, statements


def test_a_statement_ends_at_its_semicolon_and_has_no_comments() -> None:
    source = (
        "-- of tasks\n\n-- name: one\n-- why\nselect 1, ';'\nfrom a;\n\n-- name: two\nselect 2;\n"
    )
    assert parse(source) == {"one": "select 1, ';'\nfrom a", "two": "select 2"}


def test_parts_are_put_in_with_what_they_are_given() -> None:
    source = """
-- name: all
{page tasks any};
-- part: page table which
select * from {table} where {which} and tags <> '{}' and id ~ '{1,2}' and x = any('{a,b}');
-- part: any
true;
-- name: mine
{page_of_mine};
-- part: page_of_mine
{page others of_me};
-- part: of_me
owner = $1;
"""
    rest = "and tags <> '{}' and id ~ '{1,2}' and x = any('{a,b}')"
    assert parse(source) == {
        "all": f"select * from tasks where true {rest}",
        "mine": f"select * from others where owner = $1 {rest}",
    }


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("-- name: a\nselect 1;\n-- name: a\nselect 2;\n", ValueError),
        ("-- name: a\nselect 1;\n-- part: a\nselect 2;\n", ValueError),
        ("-- name: a\nselect {b};\n", LookupError),
        ("select 1;\n-- name: a\nselect 2;\n", ValueError),
        ("-- name: a\nselect 1;\nselect 2;\n", ValueError),
        ("-- name: a\nselect 1;\n-- name: b\nselect 2\n", ValueError),
        ("-- name: a\nselect 1\n-- name: b\nselect 2;\n", ValueError),
        ("-- name: a\nselect {b c};\n-- part: b\nx;\n", ValueError),
        ("-- name: a\nselect {b};\n-- part: b c\nx;\n", ValueError),
    ],
)
def test_mistakes_are_told(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse(source)


def test_all_statements_are_whole() -> None:
    for name, text in statements().items():
        assert "\n--" not in text, name
        assert not text.endswith(";"), name
