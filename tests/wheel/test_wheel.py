"""The wheel, case by case; `test_wheel_model.py` compares it with a sorted list at random."""

import pytest

from duly.wheel.wheel import MAX_US, Wheel

START_US = 1_790_000_000_000_000  # in September 2026
TICK_US = 1 << 10
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
YEAR_9999_US = 253_402_300_799_999_999


def drain(wheel: Wheel[str, int]) -> list[tuple[int, str, int]]:
    """Everything in the wheel, by sleeping until the next due and advancing to it."""
    fired: list[tuple[int, str, int]] = []
    now_us = 0
    while (next_us := wheel.next_due_us()) is not None:
        now_us = max(now_us, next_us)
        fired += wheel.advance(now_us)
    return fired


def test_fires_at_its_microsecond_and_not_before() -> None:
    wheel = Wheel[str, int](START_US)
    wheel.insert("a", START_US + 1_500, 7)
    assert wheel.advance(START_US + 1_499) == []
    assert wheel.advance(START_US + 1_500) == [(START_US + 1_500, "a", 7)]
    assert wheel.advance(START_US + 9_000) == []
    assert len(wheel) == 0


def test_entries_of_one_tick_fire_apart_and_in_due_order() -> None:
    tick_us = START_US - START_US % TICK_US + 10 * TICK_US
    wheel = Wheel[str, int](START_US)
    for key, within_us in (("c", 900), ("a", 0), ("b", 450), ("d", TICK_US - 1)):
        wheel.insert(key, tick_us + within_us, 0)
    assert wheel.advance(tick_us - 1) == []
    assert wheel.advance(tick_us) == [(tick_us, "a", 0)]
    assert [key for _, key, _ in wheel.advance(tick_us + 899)] == ["b"]
    assert [key for _, key, _ in wheel.advance(tick_us + 5 * TICK_US)] == ["c", "d"]


@pytest.mark.parametrize("ahead_us", [0, 1, 700, SECOND_US * 3, SECOND_US * 3600, DAY_US * 30])
def test_same_due_fires_in_order_of_insertion(ahead_us: int) -> None:
    """Also when the first were inserted long before and came down through the levels."""
    due_us = START_US + ahead_us
    wheel = Wheel[int, int](START_US)
    inserted = 0
    for step in range(11):
        now_us = START_US + ahead_us * step // 10
        if step < 10:
            assert wheel.advance(min(now_us, due_us - 1)) == []
        for _ in range(3):
            wheel.insert(inserted, due_us, step)
            inserted += 1
    assert [key for _, key, _ in wheel.advance(due_us)] == list(range(inserted))


def test_rescheduling_moves_an_entry_behind_others_of_its_due() -> None:
    wheel = Wheel[str, int](START_US)
    due_us = START_US + 5_000
    wheel.insert("a", due_us, 1)
    wheel.insert("b", due_us, 1)
    wheel.insert("a", due_us, 2)
    assert len(wheel) == 2
    assert wheel.get("a") == (due_us, 2)
    assert wheel.advance(due_us) == [(due_us, "b", 1), (due_us, "a", 2)]


def test_past_dues_are_returned_by_the_next_advance_in_order() -> None:
    wheel = Wheel[str, int](START_US)
    wheel.insert("soon", START_US + 500, 0)
    wheel.insert("late", START_US - 1, 0)
    wheel.insert("ancient", -5, 0)
    wheel.insert("now", START_US, 0)
    assert wheel.next_due_us() == -5
    assert [key for _, key, _ in wheel.advance(START_US)] == ["ancient", "late", "now"]
    assert wheel.next_due_us() == START_US + 500


def test_a_clock_that_steps_back_returns_nothing_and_loses_nothing() -> None:
    wheel = Wheel[str, int](START_US)
    wheel.insert("a", START_US + 2 * SECOND_US, 0)
    assert wheel.advance(START_US + SECOND_US) == []
    assert wheel.advance(START_US - DAY_US) == []
    wheel.insert("b", START_US + SECOND_US - 1, 0)  # past already
    wheel.insert("c", START_US + SECOND_US + 1, 0)
    assert wheel.advance(START_US + SECOND_US - 1) == []
    assert [key for _, key, _ in wheel.advance(START_US + SECOND_US)] == ["b"]
    assert [key for _, key, _ in wheel.advance(START_US + 2 * SECOND_US)] == ["c", "a"]


@pytest.mark.parametrize("power", range(0, 60, 5))
@pytest.mark.parametrize("around_us", [-1, 0, 1])
def test_boundaries_of_the_levels(power: int, around_us: int) -> None:
    """Dues at, before and after each digit's roll-over, from positions on both sides of it."""
    for position_us in {0, (1 << power) - 1, 1 << power, (1 << power) + TICK_US}:
        due_us = position_us + (1 << power) + around_us
        wheel = Wheel[str, int](position_us)
        wheel.insert("a", due_us, 0)
        assert wheel.next_due_us() == due_us
        if due_us > position_us:
            assert wheel.advance(due_us - 1) == []
        assert wheel.advance(max(due_us, position_us)) == [(due_us, "a", 0)]


@pytest.mark.parametrize(
    "delay_us",
    [2_147_483_647_000, 2_147_483_648_000, 60 * DAY_US, 400 * DAY_US, YEAR_9999_US - START_US],
)
def test_long_delays_do_not_wrap(delay_us: int) -> None:
    """Delays of 2**31 ms and more, up to the year 9999, reached through every stage between."""
    wheel = Wheel[str, int](START_US)
    due_us = START_US + delay_us
    wheel.insert("far", due_us, 1)
    wheel.insert("near", START_US + 5, 2)
    assert wheel.advance(START_US + 5) == [(START_US + 5, "near", 2)]
    for part in range(1, 1000):
        assert wheel.advance(START_US + delay_us * part // 1000) == []
    assert wheel.next_due_us() == due_us
    assert wheel.advance(due_us - 1) == []
    assert wheel.advance(due_us) == [(due_us, "far", 1)]


def test_instants_beyond_the_range_are_refused_and_change_nothing() -> None:
    wheel = Wheel[str, int](START_US)
    wheel.insert("a", MAX_US, 1)
    with pytest.raises(ValueError, match="due_us must be at most"):
        wheel.insert("a", MAX_US + 1, 2)
    with pytest.raises(ValueError, match="now_us must be at most"):
        wheel.advance(MAX_US + 1)
    with pytest.raises(ValueError, match="limit must be at least 1"):
        wheel.advance(START_US, limit=0)
    for start_us in (-1, MAX_US + 1):
        with pytest.raises(ValueError, match="start_us must be between"):
            Wheel[str, int](start_us)
    assert wheel.advance(MAX_US) == [(MAX_US, "a", 1)]


def test_cancel() -> None:
    wheel = Wheel[str, int](START_US)
    assert not wheel.cancel("a")
    for key, due_us in (("a", START_US + DAY_US), ("b", START_US + 5), ("c", START_US - 5)):
        wheel.insert(key, due_us, 0)
        assert key in wheel
        assert wheel.cancel(key)
        assert not wheel.cancel(key)
        assert key not in wheel
        assert wheel.get(key) is None
    assert len(wheel) == 0
    assert wheel.next_due_us() is None
    assert wheel.advance(START_US + 2 * DAY_US) == []


def test_discard_where_removes_what_matches_wherever_it_is() -> None:
    wheel = Wheel[int, int](START_US)
    for key in range(1000):
        wheel.insert(key, START_US + (key - 100) ** 3 * 10, key % 7)
    assert len(wheel.advance(START_US, limit=50)) == 50  # so that some wait in the queue
    assert wheel.discard_where(lambda key, value: key % 2 == 0 or value == 3) == 543
    left = [key for _, key, _ in wheel.advance(START_US + DAY_US)]
    assert left == [key for key in range(50, 1000) if key % 2 and key % 7 != 3]


def test_a_catch_up_in_bites_keeps_due_order_with_arrivals_in_between() -> None:
    wheel = Wheel[int, int](START_US)
    for key in range(10_000):
        wheel.insert(key, START_US + key * 7_919_000_017 % DAY_US, 0)
    now_us = START_US + 2 * DAY_US
    fired: list[int] = []
    bites = 0
    while bite := wheel.advance(now_us, limit=100):
        fired += [due_us for due_us, _, _ in bite]
        bites += 1
        assert len(fired) == min(100 * bites, 10_050)
        if bites <= 50:  # due between what was fired and what is next, and long ago
            wheel.insert(10_000 + bites, fired[-1] + 1, 0)
            wheel.insert(20_000 + bites, fired[-1] + 1, 0)
            wheel.cancel(20_000 + bites)
    assert fired == sorted(fired)
    assert len(fired) == 10_050


def test_a_herd_in_one_tick_is_served_in_bites() -> None:
    due_us = START_US + 5 * SECOND_US
    wheel = Wheel[int, int](START_US)
    for key in range(20_000):
        wheel.insert(key, due_us + key % 3, 0)
    start_us = wheel.next_due_us()
    assert start_us is not None
    assert due_us - 2 * SECOND_US < start_us <= due_us
    assert wheel.advance(start_us) == []
    assert wheel.advance(due_us - 1) == []
    assert wheel.next_due_us() == due_us
    keys: list[int] = []
    while bite := wheel.advance(due_us + 2, limit=777):
        keys += [key for _, key, _ in bite]
    assert keys == sorted(range(20_000), key=lambda key: (key % 3, key))


def test_a_large_slot_far_away_moves_down_instead_of_being_sorted() -> None:
    wheel = Wheel[int, int](START_US)
    for key in range(10_000):
        wheel.insert(key, START_US + DAY_US + key * 37 % 10_007, 0)
    keys = [key for _, key, _ in wheel.advance(START_US + 2 * DAY_US)]
    assert keys == sorted(range(10_000), key=lambda key: key * 37 % 10_007)


def test_a_stall_of_hours_costs_entries_not_time() -> None:
    """Eight thousand years with one entry each take a moment: nothing looks at empty slots."""
    wheel = Wheel[str, int](0)
    dues_us = [year * 365 * DAY_US for year in range(1, 8_001)]
    for due_us in dues_us:
        wheel.insert(str(due_us), due_us, 0)
    assert [due_us for due_us, _, _ in wheel.advance(YEAR_9999_US)] == dues_us


def test_sleeping_until_the_next_due_finds_everything_on_time() -> None:
    wheel = Wheel[str, int](START_US)
    dues_us = [START_US + step**5 * 137 for step in range(1, 300)]
    for due_us in reversed(dues_us):
        wheel.insert(str(due_us), due_us, 0)
    assert [due_us for due_us, _, _ in drain(wheel)] == dues_us
