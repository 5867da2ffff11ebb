"""One item ahead: the right one, whatever is asked for; errors come through; it is really ahead."""

import threading

import pytest

from rltok_core.data.ahead import Ahead


def test_every_step_gets_its_own_item_in_any_order():
    ahead = Ahead(lambda step: step * step, stop=10)
    assert [ahead.get(step) for step in (0, 1, 2, 7, 8, 3, 3, 9)] == [0, 1, 4, 49, 64, 9, 9, 81]
    ahead.close()


def test_the_next_item_is_made_while_this_one_is_used():
    made = {step: threading.Event() for step in range(3)}

    def make(step: int) -> int:
        made[step].set()
        return step

    ahead = Ahead(make, stop=2)
    assert ahead.get(0) == 0
    assert made[1].wait(timeout=30)  # nobody has asked for it yet
    assert ahead.get(1) == 1
    ahead.close()
    assert not made[2].is_set()  # there is none after the last


def test_an_error_comes_where_its_item_is_asked_for_and_not_before():
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("step 2 is broken")
        return step

    ahead = Ahead(make, stop=5)
    assert [ahead.get(0), ahead.get(1)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="step 2 is broken"):
            ahead.get(2)
    assert ahead.get(3) == 3
    ahead.close()
