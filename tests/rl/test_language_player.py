"""The language model as an actor: its views in words, their tokens, and decisions computed in chunks."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lab import SMALL, turns, whole
from published import published_tokenizer
from safetensors.numpy import load_file
from shapes import MEDIUM, SMALL_JSON

from jaxlake import view
from jaxlake.board_text import from_text
from jaxlake.config import LakeConfig
from jaxlake.env import Lake
from jaxlake.generate import pool
from jaxlake.levels import stack
from jaxlake.state import Params
from jaxlake.types import Action
from rl.config import Config, ConfigError
from rl.judge.answers import GREEDY
from rl.model import lora, weights
from rl.model.decoder import create
from rl.model.policy import Policy
from rl.model.tokenizer import Tokenizer
from rl.students import LanguagePlayer
from rl.students.turns import language
from rl.students.turns.actor import decide
from rl.students.turns.rollout import play
from rl.students.turns.views import MOVES, Prompt, properties
from tests.support.actors import check_actor

LAKE = Lake(observe=view.View())
SEE = jax.jit(lambda level, steps: LAKE.observe(LAKE.reset(level, Params(max_steps=steps))[0]))
PHRASES = [phrase for part in view.phrases() for phrase in part]


def views_of(text: str, steps: int = 10, side: int = 5, agents: int = 3) -> list[str]:
    """Return in words what each agent of a drawn board sees at the beginning."""
    board = from_text(text, max_size=side, max_agents=agents)
    level = jax.tree.map(jnp.asarray, stack([board]))[0]
    numbers = np.asarray(SEE(level, jnp.int32(steps)))
    return [view.text(numbers[i].tolist()) for i in range(int(level.num_agents))]


@pytest.mark.parametrize("side", [3, 5])
def test_a_view_says_what_the_board_shows(side):
    """Written down from the board by hand; b stands two cells beside a, and both could enter the cell between."""
    first, second = views_of("a.b\n.#.\nB.A", side=side)
    assert first == (
        "goal 2 down, 2 right. up: blocked, then blocked. down: free, then free. left: blocked, then blocked."
        " right: free, then an agent, contested. 9 to 16 steps left."
    )
    assert second == (
        "goal 2 down, 2 left. up: blocked, then blocked. down: free, then free. left: free, then an agent, contested."
        " right: blocked, then blocked. 9 to 16 steps left."
    )


def test_the_clock_and_far_goals_are_told_in_steps():
    assert [views_of("aA\n..", steps, side=2)[0].rsplit(". ", 1)[1] for steps in (8, 9, 24, 25)] == [
        "1 to 8 steps left.", "9 to 16 steps left.", "17 to 24 steps left.", "25 or more steps left.",
    ]  # fmt: skip
    wide = views_of("a" + "." * 11 + "\n" + ("." * 12 + "\n") * 10 + "." * 11 + "A", side=12)[0]
    assert wide.startswith("goal 9 or more down, 9 or more right. ")


def test_phrases_are_told_apart_by_their_properties_and_share_them():
    table, scales = properties()
    assert table.shape == (len(PHRASES) + len(MOVES), len(scales)) and len(set(PHRASES)) == len(PHRASES)
    near = [i for i, phrase in enumerate(PHRASES) if phrase.startswith(" up: an agent")]
    shared = table[near].min(axis=0)
    assert shared.sum() == 1 and (table[:, shared == 1].sum() == len(near) == 6)  # and nobody else has it
    distances = [tuple(row) for row in table[: 2 * view.FAR + 1]]
    assert len(set(distances)) == 11  # none; one to four, and five or more, in each direction


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    shape = tmp_path_factory.mktemp("shape") / "shape.json"
    shape.write_text(json.dumps(SMALL_JSON))
    return Config(**turns(shape))


@pytest.fixture(scope="module")
def made(config):
    """An actor, its policy, and parameters with a value that is not zero."""
    policy, parameters = Policy.create(config.student, config.mesh, jax.random.key(0))
    actor, policy, parameters = language.make_actor(policy, config.student, parameters, jax.random.key(1))
    trained, frozen = lora.split(parameters)
    value = {"w": jax.random.normal(jax.random.key(2), (policy.shape.hidden_size,)), "b": jnp.ones(())}
    return actor, policy, {"model": trained, "value": value}, frozen


def some_views(count: int) -> np.ndarray:
    sizes = [len(part) for part in view.phrases()]
    return np.random.default_rng(0).integers(0, sizes, (count, len(sizes))).astype(np.int8)


def test_a_view_is_a_token_a_phrase_and_the_text_reads_back_to_them(made, tmp_path):
    actor, policy, _, _ = made
    tokens, valid = actor.prompt.tokens(some_views(20))
    for row, numbers in zip(np.asarray(tokens).tolist(), some_views(20).tolist(), strict=True):
        assert policy.tokenizer.encode(view.text(numbers)) == row
    assert np.asarray(valid).all() and len(policy.tokenizer) == policy.shape.vocab_size == 896 + 119
    for name, content in policy.tokenizer.files().items():
        (tmp_path / name).write_bytes(content)
    again = Tokenizer(tmp_path)
    assert again.encode(view.text(some_views(1)[0].tolist())) == np.asarray(tokens)[0].tolist()
    assert again.suppressed == policy.tokenizer.suppressed == tuple(range(896, 896 + 119))
    context = "Weakest:4x4 0;5x4 0 up: free, then 9 steps left. wait"
    assert again.encode(context) == Tokenizer().encode(context)  # what an engineer reads is as it was


def test_views_of_several_lengths_are_padded_on_the_right_and_decided_as_each_alone(made):
    """On the right, since cuDNN's kernel takes no other padding: in the middle, it read padding in place of tokens."""
    actor, _, parameters, frozen = made
    parts = (((1,), (2, 3, 4)), ((5, 6), (7,)))
    prompt = Prompt(before=(8, 9), parts=parts, after=(10,), moves=actor.prompt.moves)
    views = np.array([[0, 1], [1, 0]], np.int8)
    tokens, valid = map(np.asarray, prompt.tokens(views))
    rows = [[8, 9, 1, 7, 10], [8, 9, 2, 3, 4, 5, 6, 10]]
    assert [row[there].tolist() for row, there in zip(tokens, valid, strict=True)] == rows
    assert (np.diff(valid.astype(int), axis=1) <= 0).all()
    legal = np.ones((2, 5), bool)
    wide = jax.jit(dataclasses.replace(actor, prompt=prompt).forward)(parameters, frozen, views, legal)
    for number, row in enumerate(rows):
        one = Prompt(before=tuple(row), parts=(), after=(), moves=actor.prompt.moves)
        alone = jax.jit(dataclasses.replace(actor, prompt=one).forward)(parameters, frozen, views[:1], legal[:1])
        for found, expected in zip(wide, alone, strict=True):
            np.testing.assert_allclose(found[number], expected[0], atol=1e-4)


def test_the_language_model_does_what_the_trainer_requires_of_an_actor(made):
    actor, _, parameters, frozen = made
    check_actor(actor, parameters, frozen)


def test_decisions_in_chunks_are_those_of_all_at_once_for_whoever_is_wanted(made):
    actor, _, parameters, frozen = made
    views, legal = some_views(5 * 4).reshape(5, 4, -1), np.ones((5, 4, 5), bool)
    legal[..., Action.UP] = False
    wanted = np.random.default_rng(1).random((5, 4)) < 0.5
    logits, value = jax.jit(partial(decide, actor))(parameters, frozen, views, legal, wanted)
    expected, values = jax.jit(actor.forward)(parameters, frozen, views.reshape(20, -1), legal.reshape(20, 5))
    np.testing.assert_allclose(logits[wanted], expected.reshape(5, 4, 5)[wanted], atol=1e-5)
    np.testing.assert_allclose(value[wanted], values.reshape(5, 4)[wanted], atol=1e-5)
    assert (np.asarray(value)[~wanted] == 0).all() and np.allclose(np.exp(expected).sum(-1), 1)
    assert (np.asarray(logits)[wanted][:, Action.UP] < -1e8).all()


def test_phrases_learn_what_their_properties_learn(made):
    """By a step of plain descent: a row moves by the gradients of all rows with which it shares a property."""
    actor, _, parameters, _ = made
    table, first, beyond = properties()[0], actor.first, 3  # rows of a larger vocabulary, which are no token's
    optimizer = language._by_properties(optax.sgd(1.0), first)
    gradient = jax.tree.map(jnp.zeros_like, parameters)
    weight = gradient["model"]["embed_tokens"]["weight"]
    rows = np.zeros((first + len(table) + beyond, weight.shape[1]), np.float32)
    rows[[first + PHRASES.index(" up: free, then blocked."), -1], 0] = 1
    rows[3, 1] = 2
    gradient["model"]["embed_tokens"]["weight"] = weight.replace(jnp.asarray(rows))
    updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
    moved = np.asarray(updates["model"]["embed_tokens"]["weight"][...])
    expected = -table @ table.T @ rows[first : first + len(table)]
    np.testing.assert_allclose(moved[first : first + len(table)], expected)
    assert moved.shape == rows.shape and not moved[-beyond:].any()
    assert moved[3, 1] == -2 and moved[first + PHRASES.index(" up: free, then free."), 0] == -2
    assert moved[first + PHRASES.index(" down: free, then blocked."), 0] == 0


@pytest.mark.heavy
def test_what_it_saves_plays_the_same_moves(made, config, tmp_path):
    actor, policy, parameters, frozen = made
    policy.save(tmp_path, parameters["model"])
    drawn = pool.draw(LakeConfig.uniform(("3", "4"), 0.2, 0.0), jax.random.key(0), 12)
    player = language.load_player(config, tmp_path)
    answers = player.answer(drawn.instances, 1, GREEDY, jax.random.key(1), print)
    lanes = jax.tree.map(lambda x: jnp.asarray(x)[None], (parameters, drawn.instances))
    _, expected, _ = play(actor, frozen, *lanes, jax.random.key(1)[None], 0.0)
    np.testing.assert_array_equal(answers.lengths, np.asarray(expected)[0])


@pytest.mark.heavy
@pytest.mark.torch
def test_transformers_answers_the_same_moves(made, tmp_path):
    """From the text alone, by the tokenizer and the model in the folder."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    actor, policy, parameters, frozen = made
    policy.save(tmp_path, parameters["model"])
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    views = some_views(16)
    moves = [tokenizer.convert_tokens_to_ids(move) for move in MOVES]
    ours, _ = actor.forward(parameters, frozen, views, np.ones((16, 5), bool))
    for row, numbers in zip(np.asarray(ours), views.tolist(), strict=True):
        ids = tokenizer(view.text(numbers), add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            theirs = model(ids).logits[0, -1, moves].log_softmax(-1).numpy()
        np.testing.assert_allclose(row, theirs, atol=1e-4)


def test_what_cannot_play_is_refused_in_one_line(made, config, tmp_path):
    policy, parameters = Policy.create(config.student, config.mesh, jax.random.key(0))
    policy.save(tmp_path / "never", parameters)
    with pytest.raises(ConfigError, match="must hold a model that played"):
        language.load_player(config, tmp_path / "never")
    values = config.model_dump()
    words = values | {"student": values["student"] | {"tokens": False}}
    with pytest.raises(ConfigError, match="needs a tokenizer with a token for each move"):
        LanguagePlayer(Config(**words))
    values["student"] |= {"model": values["student"]["model"] | {"lora": {"rank": 2}}}
    with pytest.raises(ConfigError, match=r"student\.tokens = true: must be false with adapters"):
        LanguagePlayer(Config(**values))
    partly = dataclasses.replace(policy, tokenizer=policy.tokenizer.with_tokens(PHRASES[:3]))
    with pytest.raises(ConfigError, match="must hold a model that played the views of this version"):
        language.make_actor(partly, config.student, parameters, jax.random.key(0))


@pytest.mark.heavy
def test_a_qwen_with_adapters_plays_and_designs_in_its_own_words(config, tmp_path):
    """Random weights of two layers in the real format, with Qwen's own tokenizer: the protocol of any checkpoint."""
    tokenizer = Tokenizer(published_tokenizer())
    shape = dataclasses.replace(MEDIUM, vocab_size=151_936)
    weights.save(tmp_path / "model", shape, create(shape, jax.random.key(0))[1], tokenizer)
    values = config.model_dump()
    student = values["student"] | {"tokens": False, "chunk": 8}
    values |= {"student": student, "rounds": {"count": 2, "instances": 16}}
    model = {"shape": None, "path": str(tmp_path / "model"), "lora": {"rank": 2}, "remat": "none"}
    values["student"] |= {"model": model, "max_prompt_tokens": 136}
    values |= {"engineer": {"kind": "checkpoint", "max_prompt_tokens": 400, "max_answer_tokens": 200}}
    run = whole(tmp_path / "run", Config(**values))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * SMALL.updates and all(np.isfinite(row["loss"]) for row in rows)
    assert json.loads((run / "rounds/1/proposal.json").read_text())["engineer"] == "checkpoint"
    adapters = load_file(run / "final/adapters/adapter_model.safetensors")
    assert any(np.abs(x).max() > 0 for name, x in adapters.items() if "lora_B" in name)  # they begin as zeros
