"""Answers are grouped by configuration, instance and role; what a prompt says plays no part."""

import numpy as np

from rl.grpo import Groups, Role


def groups(version, instance, role):
    return Groups(version=np.array(version), instance=np.array(instance), role=np.array(role))


def test_answers_with_equal_keys_are_one_group_wherever_they_lie():
    found = groups([0, 0, 0, 0], [7, 3, 7, 3], [Role.PLANNER] * 4).ids()
    assert found.tolist() == [1, 0, 1, 0]
    assert found.dtype == np.int32


def test_the_same_instance_number_under_two_configurations_is_two_groups():
    assert groups([0, 1, 0, 1], [5, 5, 5, 5], [0, 0, 0, 0]).ids().tolist() == [0, 1, 0, 1]


def test_planner_and_engineer_are_never_compared():
    assert groups([2, 2], [0, 0], [Role.PLANNER, Role.ENGINEER]).ids().tolist() == [0, 1]


def test_nothing_has_no_groups():
    assert groups([], [], []).ids().shape == (0,)
