"""Learning rate, curriculum and controller against values worked out by hand."""

import math

import pytest
import torch

from rltok_core.config.schema import ControllerConfig, CurriculumConfig, TrainingConfig
from rltok_core.training import schedule


def config(**values) -> TrainingConfig:
    return TrainingConfig(**{"steps": 10, "lr": 1.0, **values})


def test_K09_learning_rates_to_the_last_digit():
    k09 = config(warmup_steps=2, warmup_from=0.5, schedule="linear")
    rates = [schedule.learning_rate(step, k09) for step in range(10)]
    assert rates == [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]


def test_paper_schedule_warms_up_from_a_tenth_and_ends_at_zero():
    paper = config(steps=110, lr=2e-3, warmup_steps=10, warmup_from=0.1, schedule="cosine")
    rates = [schedule.learning_rate(step, paper) for step in range(111)]
    assert rates[0] == pytest.approx(2e-4)
    assert rates[9] == rates[10] == pytest.approx(2e-3)
    assert rates[60] == pytest.approx(1e-3)  # half way down the cosine
    assert rates[85] == pytest.approx(2e-3 * (1 - math.sqrt(0.5)) / 2)
    assert rates[110] == pytest.approx(0, abs=1e-12)
    assert all(a < b for a, b in zip(rates[:9], rates[1:10], strict=True))
    assert all(a > b for a, b in zip(rates[10:-1], rates[11:], strict=True))


def test_constant_schedule_and_a_warmup_of_one_step():
    flat = config(warmup_steps=1, warmup_from=0.25, schedule="constant")
    assert [schedule.learning_rate(step, flat) for step in range(3)] == [0.25, 1, 1]


def test_curriculum_opens_falls_linearly_and_stays():
    curriculum = CurriculumConfig(open_until=0.1, start=0.9, end=0.5)
    cfg = config(steps=100, target_rate=0.2, curriculum=curriculum)
    rates = [schedule.target_rate(step, cfg, learned=True) for step in range(100)]
    assert rates[:10] == [1.0] * 10
    assert rates[10] == pytest.approx(0.9)
    assert rates[30] == pytest.approx(0.55)  # half of the way from 10 to 50
    assert rates[49] == pytest.approx(0.9 - 0.7 * 39 / 40)
    assert rates[50:] == [0.2] * 50
    assert schedule.curriculum_ends(cfg, learned=True) == 50


def test_no_curriculum_for_rules_or_where_it_is_off():
    curriculum = CurriculumConfig()
    assert schedule.target_rate(0, config(curriculum=curriculum), learned=False) == 0.2
    assert schedule.target_rate(0, config(), learned=True) == 0.2
    assert schedule.curriculum_ends(config(curriculum=curriculum), learned=False) == 0


def test_a_curriculum_for_rules_moves_them_as_it_moves_the_others():
    cfg = config(steps=100, target_rate=0.2, curriculum=CurriculumConfig(rules=True))
    for step in range(100):
        rates = [schedule.target_rate(step, cfg, learned) for learned in (True, False)]
        assert rates[0] == rates[1]
    assert schedule.curriculum_ends(cfg, learned=False) == 50


def test_curriculum_that_opens_to_the_end_of_its_fall_jumps_to_the_target():
    cfg = config(curriculum=CurriculumConfig(open_until=0.5, end=0.2))
    rates = [schedule.target_rate(step, cfg, learned=True) for step in range(10)]
    assert rates == [1.0] * 5 + [0.2] * 5


def test_controller_integrates_the_relative_error_and_is_clamped():
    bias = torch.zeros(())
    controller = ControllerConfig(gain=0.5, limit=0.6)
    schedule.control_rate(bias, controller, 0.2, torch.tensor(0.3, dtype=torch.float64))
    assert float(bias) == pytest.approx(0.5 * (0.2 - 0.3) / 0.2)
    schedule.control_rate(bias, controller, 0.2, torch.tensor(0.1, dtype=torch.float64))
    assert float(bias) == pytest.approx(0.0, abs=1e-7)
    for _ in range(9):
        schedule.control_rate(bias, controller, 0.2, torch.tensor(0.0, dtype=torch.float64))
    assert float(bias) == pytest.approx(0.6)
    for _ in range(9):
        schedule.control_rate(bias, controller, 0.2, torch.tensor(1.0, dtype=torch.float64))
    assert float(bias) == pytest.approx(-0.6)
