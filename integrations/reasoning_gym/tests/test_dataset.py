"""The dataset as reasoning-gym uses it, and its scores beside ``jaxlake.benchmark.score`` and figures by hand."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
import reasoning_gym
from jaxlake_reasoning_gym import DATASET_NAME
from reasoning_gym.coaching import CurriculumAttributeConfig, CurriculumExperiment, CurriculumExperimentConfig
from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.factory import create_curriculum, get_score_answer_fn

from jaxlake import answer, solve
from jaxlake.adapters.text import tasks
from jaxlake.benchmark import load, score


def test_every_answer_of_the_dataset_is_worth_one():
    dataset = reasoning_gym.create_dataset(DATASET_NAME, size=70, seed=42)
    entries = list(dataset)
    assert len(entries) == 70
    assert all(dataset.score_answer(entry["answer"], entry) == 1 for entry in entries)
    assert not any(dataset.score_answer(wrong, entries[0]) for wrong in (None, "", "I cannot.", entries[1]["answer"]))
    assert get_score_answer_fn(DATASET_NAME)(entries[0]["answer"], entries[0]) == 1


def test_a_question_depends_on_seed_and_index_alone():
    settings = {"min_grid_size": 4, "max_grid_size": 5, "seed": 7}
    few = reasoning_gym.create_dataset(DATASET_NAME, size=2, **settings)
    many = reasoning_gym.create_dataset(DATASET_NAME, size=200, **settings)
    assert many[130] == many[130] != many[2]
    assert list(few) == [many[0], many[1]]
    composite = reasoning_gym.create_dataset(
        "composite", size=3, seed=1, datasets=[DatasetSpec(name=DATASET_NAME, weight=1, config=settings)]
    )
    assert composite[0] == many[0]


def test_a_dataset_can_be_sent_to_another_process_and_a_copy_has_a_seed_of_its_own():
    first, second = (reasoning_gym.create_dataset(DATASET_NAME, size=2, max_grid_size=3, seed=seed) for seed in (1, 2))
    other = copy.deepcopy(first)
    assert first[0] == pickle.loads(pickle.dumps(first))[0] == other[0] != second[0]
    other.seed = 2
    assert list(other) == list(second)


def test_boards_are_as_the_configuration_says():
    dataset = reasoning_gym.create_dataset(
        DATASET_NAME, size=64, seed=1, min_grid_size=5, max_grid_size=6, max_agents=3, family="rooms", wait=0.25
    )
    found = Counter(entry["metadata"]["kind"] for entry in dataset)
    assert found == {"rooms5": 16, "rooms5x3": 16, "rooms6": 16, "rooms6x3": 16}
    assert sum(entry["metadata"]["needs_wait"] for entry in dataset) == 16


@pytest.mark.parametrize("level, ends", [(0, (4, 4, 2, 2, 0, 0)), (6, (4, 10, 2, 5, 0.3, 0.5))])
def test_the_curriculum_reaches_from_two_agents_on_small_boards_to_five_on_large_ones(level, ends):
    curriculum = create_curriculum(DATASET_NAME)
    curriculum.set_global_level(level)
    names = ("min_grid_size", "max_grid_size", "min_agents", "max_agents", "hole", "wait")
    config = curriculum.generate_configuration()
    assert tuple(getattr(config, name) for name in names) == ends
    hardest = DefaultCurriculumContext(RangeAttributeMode.UPPER_BOUND)  # that level's boards alone
    dataset = reasoning_gym.create_dataset(
        DATASET_NAME, **vars(curriculum.generate_configuration({"seed": 1, "size": 1}, hardest))
    )
    assert dataset[0]["metadata"]["kind"] == {0: "4", 6: "10x5"}[level]
    assert dataset.score_answer(dataset[0]["answer"], dataset[0]) == 1


def test_an_experiment_makes_it_harder():
    config = CurriculumExperimentConfig(curricula={DATASET_NAME: CurriculumAttributeConfig(attribute_levels={"*": 0})})
    experiment = CurriculumExperiment("harder", config, size=4, seed=3)
    first = experiment.get_dataset_entry(0)
    assert experiment.score_answer_with_id(first["answer"], first["metadata"]["entry_id"]) == 1
    experiment.update_difficulty(DATASET_NAME, "increment")
    assert experiment.get_dataset_entry(0)["metadata"]["difficulty"] == {
        "grid_size": (4, 5),
        "agents": (2, 3),
        "hole": 0.1,
        "wait": 0.25,
    }


def test_a_thousand_answers_are_worth_what_the_scorer_says():
    benchmark = load("validation")
    chosen = np.linspace(0, len(benchmark) - 1, 200).astype(int)
    boards, optima = benchmark.instances[chosen], benchmark.optimum[chosen]
    best = [answer(plan, boards.max_size) for plan in solve(boards).plan]
    dataset = reasoning_gym.create_dataset(DATASET_NAME)
    entries = [{"metadata": {"level": level}} for _, level in tasks(boards, optima)]
    # Both wait at the start for so many steps, some for more than the solver's horizon of 64.
    delays = [1 + number % 90 for number in range(len(chosen))]
    delayed = [
        "\n".join(f"{line[:2]}{line[2:7] * steps}{line[2:]}" for line in text.splitlines())
        for text, steps in zip(best, delays, strict=True)
    ]
    excess = 2 * np.array(delays)
    for texts, expected in (
        (best, np.ones(200)),
        ([f"<think>{best[number - 1]}</think>\n```\n{text}\n```" for number, text in enumerate(best)], np.ones(200)),
        (delayed, np.where(excess <= 2 * optima, 1 - 0.35 * excess / optima, 0.3)),
        ([text.rpartition("(")[0] for text in best], np.zeros(200)),  # an agent stops before its goal
        ([("", "I cannot.", "[[1, 2", "0:(0,")[number % 4] for number in range(200)], np.zeros(200)),
    ):
        scores = score(dict(zip((benchmark.ids[index] for index in chosen), texts, strict=True)), benchmark)
        rewards = np.array([dataset.score_answer(text, entry) for text, entry in zip(texts, entries, strict=True)])
        assert rewards == pytest.approx(expected)
        assert np.array_equal(rewards > 0, scores.valid[chosen]) and np.array_equal(
            rewards == 1, scores.optimal[chosen]
        )


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"min_agents": 3, "max_agents": 2}, "min_agents = 3 must be at most max_agents = 2"),
        ({"max_agents": 5}, "num_agents on random boards of size 3 = 5 must be a whole number from 1 to 4"),
        ({"family": "cave"}, "'cave' is not a valid Family"),
        ({"hole": 0.9}, "hole of size 3 = 0.9 must be from 0 to 0.5"),
        ({"style": "loud"}, "'loud' is not a valid PromptStyle"),
        ({"size": 0}, "size = 0 must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        reasoning_gym.create_dataset(DATASET_NAME, **settings)
