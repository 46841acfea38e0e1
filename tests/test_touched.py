"""Which heavy tests a change runs first, on changes made up here; some file of the product runs every heavy test."""

import os
import re
import subprocess

import pytest
import touched
from touched import PRODUCT, ROOT, commits_since, covers, relevance, weigh

HEAVY = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.glob("tests/**/test_*.py")
    if re.search(r"mark\.heavy", path.read_text())
)
OBSERVATIONS = ["jaxlake/observations.py", "tests/jaxlake/test_observations.py", "docs/environment.md"]


def chosen(*commits: list[str], case: str = "") -> list[str]:
    """The files of heavy tests in the order in which they run."""
    rates = {test: relevance(test, case, weigh(commits)) for test in HEAVY}
    return sorted(filter(rates.get, rates), key=lambda test: -rates[test])


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("rl/students/player/ppo.py", "tests/rl/test_player.py"),  # by its name
        ("rl/students/base.py", "tests/rl/test_students.py"),  # a package hands its names on
        ("jaxlake/solve/lanes.py", "tests/jaxlake/solve/test_tree.py"),  # by what the test imports
        ("tests/support/stage.py", "tests/rl/test_rounds.py"),
        ("jaxlake/adapters/jumanji.py", "tests/jaxlake/adapters/test_jumanji.py"),
        ("tests/jaxlake/solve/test_pairs.py", "tests/jaxlake/solve/test_pairs.py"),
    ],
)
def test_a_file_runs_the_tests_that_cover_it(file, test):
    assert test in chosen([file])[:6]


def test_pages_and_notebooks_run_their_own_case_and_no_test_of_modules():
    change = ["docs/training.md", "notebooks/02_environment.ipynb", "README.md", "CHANGELOG.md"]
    assert chosen(change) == []
    assert chosen(change, case="training.md") == chosen(change, case="02_environment") == HEAVY  # whoever has the case
    assert chosen(change, case="policy.md") == []


def test_the_newest_commit_comes_first():
    older, newer = ["rl/model/lora.py"], ["jaxlake/pibt.py", "rl/run/progress.py"]
    tests = chosen(newer, OBSERVATIONS, older)
    named = ["tests/jaxlake/test_pibt.py", "tests/jaxlake/test_observations.py", "tests/rl/model/test_lora.py"]
    assert [test for test in tests if test in named] == named
    assert weigh([newer, OBSERVATIONS, [*older, *newer]])["jaxlake/pibt.py"] == 1


@pytest.mark.parametrize("test", HEAVY)
def test_every_heavy_test_covers_a_file_of_the_product(test):
    by_page = {"tests/test_docs.py"}  # each case is a page
    assert test in by_page or any(path.startswith(PRODUCT) for path in covers(test))


def test_a_change_is_what_came_since_its_base_or_in_the_last_hours(tmp_path, monkeypatch):
    def git(*command: str, hour: int = 0) -> str:
        when = f"2026-01-01T{hour:02}:00:00Z"
        names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        done = subprocess.run(
            ["git", *command], cwd=tmp_path, env=os.environ | names | dates, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    for hour, files in ((1, ["a"]), (8, ["a", "b c"]), (11, ["d"])):
        for file in files:
            (tmp_path / file).write_text(str(hour))
        git("add", "-A")
        git("commit", "-q", "-m", "work", hour=hour)
    monkeypatch.setattr(touched, "ROOT", tmp_path)
    assert commits_since("") == [["d"], ["a", "b c"]]
    assert commits_since("HEAD~1") == [["d"]]
    git("clone", "-q", "--depth=1", tmp_path.as_uri(), "shallow")
    monkeypatch.setattr(touched, "ROOT", tmp_path / "shallow")
    assert commits_since("") == [["a", "b c", "d"]]  # nothing says what is new
