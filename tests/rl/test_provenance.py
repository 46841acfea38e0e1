"""Every value of a run knows where it comes from: the paper, our reading of it, our default, or whoever changed it."""

import re
from pathlib import Path

import pytest

from rl import config as config_
from rl.config import provenance

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny.yaml"
RUNS = sorted(CONFIGS.glob("*.yaml"))


def of(path, *overrides):
    return provenance(config_.load(path, overrides))


def commented(path):
    """(key, tag) of every value with a comment that begins with an origin."""
    above = []
    for line in path.read_text().splitlines():
        if match := re.match(r"( *)(\w+):(.*)", line):
            indent, name, rest = len(match[1]) // 2, match[2], match[3]
            above = [*above[:indent], name]
            if tag := re.search(r"# (paper|inferred|ours)\b", rest):
                yield ".".join(above), tag[1]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_origins_in_comments_of_the_shipped_files_are_true(path):
    found = of(path)
    for key, tag in commented(path):
        said = re.match(r"\w+", found[key])[0]
        assert said == tag or (tag, said) == ("ours", "changed"), key


def test_nothing_of_the_default_run_is_changed():
    assert "changed" not in "".join(of(TINY).values())
    assert of(TINY)["grpo.prompts"] == "ours"
    assert of(TINY)["rounds.count"] == "paper"
    assert of(TINY)["lake.kinds"] == "ours: the paper has [3, 4, 5, 6, 7, 8, 9, 10]"
    assert of(TINY)["lake.objective"] == "inferred: best supported reading"
    assert of(TINY)["rounds.instances"] == "ours: the paper has 4000"
