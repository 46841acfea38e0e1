"""The API against servers that are not ours, with a random model: what they refuse, ignore and take, end to end.

They need pip install . --group servers.
"""

import json
from pathlib import Path

import jax
import pytest
import servers
from shapes import SMALL_JSON
from stage import Stage

from rl import config as config_
from rl.evaluate import main
from rl.judge.server import ChatClient
from rl.model.policy import Policy
from rl.model.sampler import SamplingParams

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


def save(folder: Path) -> Path:
    """Write a random model as a run leaves one."""
    folder.mkdir()
    (folder / "shape.json").write_text(json.dumps(SMALL_JSON))
    config = config_.validate(config_.Config, {"student": {"model": {"shape": str(folder / "shape.json")}}}, "a test")
    policy, parameters = Policy.create(config.student, config.mesh, jax.random.key(1))
    policy.save(folder / "final", parameters)
    return folder / "final"


@pytest.fixture(scope="module")
def transformers_serve(tmp_path_factory):
    """URL and model; its files are readable for their owner alone, as some that save_pretrained writes are."""
    pytest.importorskip("transformers.cli.serve", reason="transformers serve needs pip install . --group servers")
    for name in ("torch", "fastapi", "uvicorn", "accelerate"):
        pytest.importorskip(name, reason="transformers serve needs pip install . --group servers")
    folder = save(tmp_path_factory.mktemp("transformers") / "run")
    for file in folder.iterdir():
        file.chmod(0o600)
    with servers.transformers_serve(folder) as url:
        yield url, str(folder)


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory):
    """URL and model."""
    for name in ("xllamacpp", "gguf"):
        pytest.importorskip(name, reason="llama.cpp's server needs pip install . --group servers")
    with servers.llama_cpp(save(tmp_path_factory.mktemp("llama") / "run")) as url:
        yield url, "tiny"


def evaluate(server, folder: Path, capsys, *settings) -> tuple[int, str, str]:
    """Answer two boards twice; return status, and what was said and complained of in one line each."""
    command = ["--api", *server, "--suite", "validation", "--limit", "2", "--samples", "2"]
    status = main([*command, "--out", str(folder), "student.text.max_new_tokens=24", *settings])
    out, err = capsys.readouterr()
    return status, " ".join(out.split()), err


def design(stage: Stage, server, **api):
    """Let the server's model design round 1; return the proposal, and how it was asked."""
    url, model = server
    api = {"url": url, "model": model} | api
    run = stage.after_round_0(kind="api", template=None, temperature=1.0, api=api)
    return run.design(), run.log("api.jsonl")[0]


def test_transformers_refuses_fields_by_name_and_stays_greedy(transformers_serve, tmp_path, capsys):
    """Its generation_config.json, without do_sample, decides; temperature is read, and nothing is drawn."""
    status, out, err = evaluate(transformers_serve, tmp_path / "e", capsys)
    assert (status, err) == (0, "") and "refuses top_k, min_p, repetition_penalty; for these" in out
    answers = [json.loads(line) for line in (tmp_path / "e/answers.jsonl").read_text().splitlines()]
    assert len({(answer["id"], answer["answer"]) for answer in answers}) == 2 < len(answers) == 4


def test_transformers_takes_no_schema_and_says_nothing_so_answers_are_read_tolerantly(stage, transformers_serve):
    proposal, row = design(stage, transformers_serve, max_tokens=24)
    assert "response_format" in row["sent"] and proposal.fallback
    assert set(proposal.errors) == {"the answer was cut off at 24 tokens"}


def test_llama_cpp_takes_every_field_and_draws_from_the_whole_distribution(llama_cpp, tmp_path, capsys):
    """100 first tokens of 896 that are about equally likely; by its own defaults it draws among 40."""
    status, _, err = evaluate(llama_cpp, tmp_path / "e", capsys)
    assert (status, err) == (0, "")
    scores = json.loads((tmp_path / "e/scores.json").read_text())
    assert scores["sent"].keys() >= {"top_k", "top_p", "min_p", "chat_template_kwargs"}
    client = ChatClient(*llama_cpp, SamplingParams(), max_tokens=1, thinking=True)
    answers = dict(client.map(["Go."] * 100, range(100), concurrency=2))
    assert len({answer.text for answer in answers.values()}) > 60


def test_llama_cpp_holds_random_weights_to_a_legal_design(stage, llama_cpp):
    proposal, row = design(stage, llama_cpp)
    assert (proposal.attempts, proposal.errors, proposal.fallback) == (1, (), False)
    assert proposal.parsed.keys() == {"3", "4"}
    for entry in proposal.parsed.values():
        assert all(abs(ratio * 200 - round(ratio * 200)) < 1e-9 for ratio in entry.values())
        assert entry["hole"] <= 0.5 and max(entry.values()) <= 1
