"""Text under a grammar is in the grammar whatever the logits; thoughts are free, capped and kept as written."""

import dataclasses
import json
import shutil

import jax
import pytest
from shapes import MEDIUM

from engineer import proposal
from jaxlake.config import LakeConfig, project
from jaxlake.kinds import Kind
from rl.config import EngineerSection
from rl.model.decoder import abstract, create
from rl.model.sampler import Sampler
from rl.model.sampler.grammar import GrammarSampler, allowed_tokens
from rl.model.sampler.programs import programs
from rl.model.sharding import make_mesh, rollout_shardings
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer

pytestmark = pytest.mark.heavy  # its texts are written for 10 seconds

SHAPE = dataclasses.replace(MEDIUM, vocab_size=912)  # more than the tokenizer has, as Qwen's
KINDS = tuple(map(Kind.of, (3, 4, 5, 6)))


class Noise:
    """A very bad model: the sampler over random parameters at a temperature that levels them."""

    def __init__(self, weights, fsdp=1):
        mesh = make_mesh(fsdp, 1)
        graph, _ = abstract(SHAPE, mesh)
        self.parameters = jax.device_put(weights, rollout_shardings(weights, mesh))
        tokenizer = Tokenizer()
        self.sampler = GrammarSampler(
            Sampler(graph, SHAPE, mesh, fsdp, max_prompt_tokens=1, max_new_tokens=1, stop_ids=tokenizer.stop_ids),
            tokenizer,
            EngineerSection(max_prompt_tokens=16, max_thinking_tokens=128, max_answer_tokens=400, temperature=5.0),
            early_stop="Enough.",
        )

    def write(self, seed=0, message="design", grammar=None):
        grammar = proposal.grammar(KINDS) if grammar is None else grammar
        return self.sampler.write(self.parameters, message, grammar, jax.random.key(seed))


@pytest.fixture(scope="module")
def weights():
    return create(SHAPE, jax.random.key(0), make_mesh(1, 1))[1]


@pytest.fixture(scope="module")
def noise(weights):
    return Noise(weights)


@pytest.fixture(scope="module")
def responses(noise):
    return [noise.write(seed) for seed in range(8)]


def test_the_sampler_writes_a_legal_config_whatever_the_logits(responses):
    previous = LakeConfig.uniform(KINDS, 0.25, 0.25)
    for response in responses:
        config, _ = project(json.loads(response.answer), previous)
        assert config.kinds == KINDS
        assert abs(sum(config.data) - 1) < 1e-6
        assert set(json.loads(response.answer)) <= {"3", "4", "5", "6"}  # one that is not named gets no data
    assert len({response.raw for response in responses}) == len(responses)


def test_every_thought_is_closed_once(responses):
    cut = 0
    for response in responses:
        assert response.raw.startswith("<think>\n") and response.raw.count("</think>") == 1
        assert response.raw.endswith(f"</think>\n\n{response.answer}")
        thought = response.raw[len("<think>\n") : response.raw.index("</think>")].strip()
        cut += thought.endswith("\n\nEnough.")
        assert response.thinking == thought.removesuffix("Enough.").strip()
    assert cut > 0


def test_a_thought_without_a_token_for_its_end_is_closed_by_the_text(noise, tmp_path):
    shutil.copytree(TINY_TOKENIZER, tmp_path, dirs_exist_ok=True)
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if "think" not in token["content"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.end_think_id is None
    sampler = dataclasses.replace(noise.sampler, tokenizer=tokenizer)
    for closed, forced in ("</think>", "\n\n"), ("<think></think>", "\n\n"), ("</think", None):
        allow = allowed_tokens(sampler, 'start: "yes" | "no"').send
        allowed = allow(None)
        for token in tokenizer.encode(f"north, then east{closed}"):
            assert allowed[token] and allowed.sum() > 100
            allowed = allow(token)
        if forced is None:
            assert allowed.sum() > 100
            continue
        written = []
        while allowed.sum() == 1:
            written.append(int(allowed.argmax()))
            allowed = allow(written[-1])
        assert tokenizer.decode(written) == forced
    response = sampler.write(noise.parameters, "design", 'start: "yes" | "no"', jax.random.key(0))
    assert response.raw == f"<think>\n{response.raw[8:].partition('</think>')[0]}</think>\n\n{response.answer}"
    assert response.answer in ("yes", "no") and response.thinking and "</think>" not in response.thinking


def test_other_messages_and_grammars_compile_nothing(noise, responses):
    compiled = programs(noise.sampler.tokens)
    before = [program._cache_size() for program in compiled]
    noise.write(seed=3, message="plan", grammar='start: "yes" | "no"')
    assert [program._cache_size() for program in compiled] == before


def test_the_mesh_does_not_change_a_text(weights, responses):
    assert [Noise(weights, fsdp=2).write(seed) for seed in range(2)] == responses[:2]
