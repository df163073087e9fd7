"""Times in which the machine is slow are told from those in which others use it."""

import anyio
import pytest
from benchmarks.pulse import Beat, slow_times, speed_figures, watched
from benchmarks.rig import Start

NORMAL_S = 40e-6


def beats(*slow: int, count: int = 100) -> list[Beat]:
    """One every 5 ms, of which those of these numbers took ten times as long."""
    return [
        Beat(n * 0.005, took, took)
        for n in range(count)
        for took in [NORMAL_S * (10 if n in slow else 1)]
    ]


def test_only_what_takes_processor_time_is_slow() -> None:
    waiting = [Beat(n * 0.005, 0.004 if n == 7 else NORMAL_S, NORMAL_S) for n in range(20)]
    assert slow_times(waiting) == []
    assert slow_times([]) == []


def test_a_slow_time_begins_after_the_last_quick_piece_of_work() -> None:
    (one, other) = slow_times(beats(10, 11, 12, 50))
    assert tuple(one) == pytest.approx((0.045 + NORMAL_S, 0.060 + 10 * NORMAL_S))
    assert tuple(other) == pytest.approx((0.245 + NORMAL_S, 0.250 + 10 * NORMAL_S))


def test_tasks_that_a_slow_time_touched_are_left_out() -> None:
    starts = [Start(0.010, 0.012), Start(0.245, 0.300), Start(0.100, 0.400), Start(0.260, 0.290)]
    figures = speed_figures(beats(50), starts)
    assert figures["p99_ms_at_full_speed"] == pytest.approx(2)
    assert figures["slow_machine_percent"] == pytest.approx(1.08, abs=0.1)
    # One that was due long after it is not touched.
    figures = speed_figures(beats(50), [Start(0.300, 0.310)])
    assert figures["p99_ms_at_full_speed"] == pytest.approx(10)


def test_without_any_task_or_pulse_nothing_is_told_of_it() -> None:
    assert "p99_ms_at_full_speed" not in speed_figures(beats(50), [Start(0.25, 0.26)])
    assert speed_figures([], [Start(0.25, 0.26)]) == {}


async def test_the_pulse_is_taken_by_a_process_of_its_own() -> None:
    async with watched() as taken:
        await anyio.sleep(0.5)
    assert taken
    assert taken == sorted(taken)
    assert all(beat.cpu_s > 0 for beat in taken)
