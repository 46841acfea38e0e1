"""The reader beside fair people: hundreds of answers in the manners of language models, with what is to be read."""

import json
import re
from pathlib import Path

import pytest

from jaxlake.text import read
from jaxlake.types import ABSENT, OUTSIDE

yaml = pytest.importorskip("yaml")

SIDE, AGENTS = 10, 5
DATA = Path(__file__).parent / "data"
ANSWERS = yaml.safe_load((DATA / "answers.yaml").read_text(encoding="utf-8"))
REAL = [json.loads(line) for line in (DATA / "answers_smollm2.jsonl").read_text(encoding="utf-8").splitlines()]
"""Answers of SmolLM2-135M-Instruct at temperatures .6 and 1, untaught and after 3,200 plans."""


def cells(text: str) -> list[int]:
    """The cells that coordinates name, off the board ``OUTSIDE``."""
    pairs = [(int(row), int(column)) for row, column in re.findall(r"\((-?\d+),(-?\d+)\)", text)]
    return [row * SIDE + column if 0 <= row < SIDE and 0 <= column < SIDE else OUTSIDE for row, column in pairs]


def settled(path: list[int]) -> list[int]:
    """The path without waits at its end, which no check and no cost sees."""
    while len(path) > 1 and path[-1] == path[-2]:
        path = path[:-1]
    return path


def paths_read(entry: dict, with_starts: bool = True) -> dict[int, list[int]]:
    """What the reader finds, of the agents that the board has."""
    starts = cells(entry["starts"])
    padded = [*starts, *[ABSENT] * (AGENTS - len(starts))] if with_starts else None
    plan = read(entry["text"], max_size=SIDE, max_agents=AGENTS, max_steps=64, starts=padded).plan
    named = range(len(starts))
    return {agent: settled(plan.paths[agent, : plan.lengths[agent]].tolist()) for agent in named if plan.lengths[agent]}


def paths_meant(entry: dict) -> dict[int, list[int]]:
    """What a fair person reads, nothing where that is in doubt."""
    if entry["paths"] == "doubt":
        return {}
    agents = range(len(cells(entry["starts"])))
    return {int(agent): settled(cells(path)) for agent, path in entry["paths"].items() if int(agent) in agents}


@pytest.mark.parametrize(("answers", "count", "share"), [(ANSWERS, 563, 0.9), (REAL, 320, 0.99)], ids=["hand", "real"])
def test_answers_are_read_as_a_fair_person_does_and_none_as_another_plan(answers, count, share):
    assert len(answers) == count
    unread = [entry["manner"] for entry in answers if paths_read(entry) != paths_meant(entry)]
    misread = [entry["manner"] for entry in answers if paths_read(entry) not in ({}, paths_meant(entry))]
    assert len(unread) <= (1 - share) * count, unread
    assert misread == []


def test_without_the_starts_coordinates_are_read_as_well_but_for_what_only_the_starts_tell():
    """That is numbering from 1, and a first cell that is left out."""
    for entry in ANSWERS:
        meant = paths_meant(entry).values()
        if meant and entry["format"] == "coordinates":
            for path in paths_read(entry, with_starts=False).values():
                assert any(path == whole[-len(path) :] for whole in meant), entry["manner"]
