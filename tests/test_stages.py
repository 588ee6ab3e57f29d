"""The schedule as data."""

from __future__ import annotations

import pytest

from lagsplat_ns.training.stages import PARAMETER_GROUPS, Schedule, default_stages


@pytest.mark.parametrize("count", [4, 7, 20, 900])
def test_stages_cover_all_iterations_in_order(count: int) -> None:
    schedule = Schedule(count)
    assert next(iter(schedule.starts())) == 0
    names = [schedule.at(step)[0].name for step in range(count)]
    order = [stage.name for stage in default_stages()]
    assert sorted(names, key=order.index) == names
    for step in schedule.starts():
        assert schedule.at(step)[1] == 0.0


def test_a_resumed_training_stays_in_the_last_stage() -> None:
    stage, progress = Schedule(100).at(250)
    assert stage.name == "joint" and progress == 1.0


def test_stages_train_groups_that_exist() -> None:
    for stage in default_stages():
        assert set(stage.trains) <= set(PARAMETER_GROUPS)
        assert stage.rate("frame_motions", 0.0) == (1.0 if stage.name == "kinematics" else 0.0)


def test_blur_and_decay_follow_progress() -> None:
    stage = next(s for s in default_stages() if s.name == "kinematics")
    assert [stage.blur(p) for p in (0.0, 0.3, 0.9)] == [7, 3, 1]
    assert stage.rate("means", 0.1) == pytest.approx(5 * stage.rate("means", 0.9))
