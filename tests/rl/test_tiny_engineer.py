"""The language model that is shipped as an engineer is small, loads, and designs boards for the lab."""

from pathlib import Path

import jax
import pytest
from rows import measured

from engineer import Evidence, LanguageEngineer, PastRound, Training
from engineer.evidence import TrainingEvidence
from jaxlake.config import LakeConfig
from rl import config as config_
from rl.config import MeshSection, WriterSection
from rl.learn.context import read_context
from rl.model.policy import SHIPPED_MODEL, Policy
from rl.model.presets import shape_of
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer

MADE_BY = config_.load(Path(__file__).parents[2] / "configs" / "tiny-engineer.yaml")
LAB = config_.load(Path(__file__).parents[2] / "configs" / "lab.yaml")


def test_the_folder_is_the_tiny_model_with_its_tokenizer_in_little_more_than_a_megabyte():
    assert sum(path.stat().st_size for path in SHIPPED_MODEL.iterdir()) < 1.2e6
    assert shape_of(SHIPPED_MODEL) == shape_of("tiny")
    assert (SHIPPED_MODEL / "tokenizer.json").read_bytes() == (TINY_TOKENIZER / "tokenizer.json").read_bytes()
    assert len(Tokenizer(SHIPPED_MODEL)) <= shape_of("tiny").vocab_size


def test_it_was_taught_the_kinds_and_targets_of_the_lab():
    assert MADE_BY.lake.kinds == LAB.lake.kinds and MADE_BY.target_kinds == LAB.target_kinds
    assert MADE_BY.student.warm_start.contexts == (MADE_BY.engineer.context,)
    assert LAB.engineer == MADE_BY.engineer.model_copy(update={"kind": LAB.engineer.kind})  # its rooms are said twice


@pytest.mark.heavy
def test_its_masked_answer_to_a_context_of_the_lab_is_a_legal_configuration():
    policy, parameters = Policy.create(WriterSection(), MeshSection(fsdp=1), jax.random.key(0))
    kinds, targets = LAB.lake.kinds, LAB.target_kinds
    trained = TrainingEvidence(tuple(measured(kind, max(0, 1 - 0.09 * kind.difficulty)) for kind in kinds), ())
    evidence = Evidence(tuple(measured(kind, 0.0, 24) for kind in targets), 0.0, 0.0, 4, 9.0, 0.0, training=trained)
    settings = MADE_BY.engineer.model_copy(update={"kind": "model"})
    generate = policy.grammar_sampler(settings).generation(lambda: parameters, lambda done: None)
    engineer = LanguageEngineer(
        name="model",
        generate=generate,
        context=read_context(settings),
        training=lambda number: Training(number, LAB.rounds.count, LAB.student.epochs),
        attempts=1,
    )
    history = [PastRound(0, LakeConfig.random(kinds, jax.random.key(1)), evidence)]
    proposal = engineer.propose(evidence, history, jax.random.key(2))
    assert not proposal.fallback and not proposal.errors
    named = [str(kind) in proposal.parsed for kind in kinds]
    assert sum(named) == len(proposal.parsed) == 4  # as many as `frontier`, by which it was taught
    assert proposal.projected.kinds == kinds
    assert [share > 0 for share in proposal.projected.data] == named  # what it leaves out has no data
