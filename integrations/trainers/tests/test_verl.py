"""The dataset in verl's own hands: its loader, sampler, batches and tokenizer; no trainer, as that needs a GPU."""

import copy
import json

import numpy as np
import pytest
from policy import NO_PLAN

from jaxlake import LakeConfig, answer, generate, solve
from jaxlake.adapters.text import compute_score, verl_rows
from jaxlake.files import from_record

torch = pytest.importorskip("torch")
verl = pytest.importorskip("verl")

import datasets  # noqa: E402
import jax  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler  # noqa: E402
from verl.utils.dataset.rl_dataset import collate_fn  # noqa: E402

SAMPLES, LENGTH = 4, 300
RATES = {"3": 1.0, "4": 0.5}


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes as tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    fast = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={one: i for i, one in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>")


@pytest.fixture
def config(tmp_path):
    """What of verl's `data` section matters here."""
    curriculum = tmp_path / "curriculum.yaml"
    curriculum.write_text(
        "kinds: [3, 4]\nengineer: learnability\nhole: 0.2\nwait: 0.3\ntasks_per_round: 12\n", encoding="utf-8"
    )
    return OmegaConf.create(
        {
            "train_files": str(curriculum),
            "custom_cls": {"path": "pkg://jaxlake_trainers.verl", "name": "EngineerDataset"},
            "dataloader_num_workers": 0,
            "max_prompt_length": 2048,
            "max_response_length": LENGTH,
            "filter_overlong_prompts": False,
            "shuffle": True,
            "seed": 1,
        }
    )


def best(level):
    """Write the solver's plan for a row's level."""
    instance = from_record(json.loads(level), 4, 2)
    return answer(solve(instance).plan, 4)


class Trainer:
    """The steps of verl's loop that concern data: a batch, its answers, its report."""

    def __init__(self, config, tokenizer):
        self.tokenizer = tokenizer
        self.dataset = create_rl_dataset(config.train_files, config, tokenizer, None)
        sampler = create_rl_sampler(config, self.dataset)
        self.loader = StatefulDataLoader(
            self.dataset, batch_size=4, num_workers=0, drop_last=True, collate_fn=collate_fn, sampler=sampler
        )
        self.batches = iter(())

    def next_rows(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def step(self):
        """Train on a batch; return the rows' numbers and levels."""
        rows = self.next_rows()
        batch = verl.DataProto.from_single_dict(rows)
        batch.non_tensor_batch["uid"] = np.array([str(place) for place in range(len(batch))], object)
        batch = batch.repeat(SAMPLES, interleave=True)
        batch.batch["responses"] = torch.full((len(batch), LENGTH), self.tokenizer.pad_token_id)
        batch.batch["response_mask"] = torch.zeros(len(batch), LENGTH, dtype=torch.int64)
        batch.batch["token_level_scores"] = torch.zeros(len(batch), LENGTH)
        for i in range(len(batch)):
            kind = batch.non_tensor_batch["extra_info"][i]["kind"]
            level = batch.non_tensor_batch["reward_model"][i]["ground_truth"]
            text = best(level) if i % SAMPLES < RATES[kind] * SAMPLES else NO_PLAN
            ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
            batch.batch["responses"][i, : len(ids)] = torch.tensor(ids)
            batch.batch["response_mask"][i, : len(ids)] = 1
            batch.batch["token_level_scores"][i, len(ids) - 1] = compute_score("jaxlake", text, level)
        batch.reorder(torch.randperm(len(batch)))  # as verl balances its workers
        self.dataset.on_batch_end(batch=batch)
        levels = [row["ground_truth"] for row in rows["reward_model"]]
        return list(zip(rows["index"].tolist(), levels, strict=True))


@pytest.fixture
def trainer(config, tokenizer):
    return Trainer(config, tokenizer)


def test_an_epoch_is_a_round_of_rows_as_verl_reads_them(trainer):
    assert len(trainer.dataset) == 12 and len(trainer.loader) == 3
    rows = trainer.next_rows()
    assert [message["content"][:10] for (message,) in rows["raw_prompt"]] == ["Find paths"] * 4
    assert rows["index"].tolist() == [0, 1, 2, 3] and set(rows["data_source"]) == {"jaxlake"}


def test_the_next_epoch_is_designed_from_the_batches_that_verl_reports(trainer):
    """`learnability` weighs sizes by p (1 - p) + .05: .05 and .30 of .35, in steps of .005."""
    numbers = [number for _ in range(4) for number, _ in trainer.step()]
    assert numbers == list(range(16))
    curriculum = trainer.dataset.curriculum
    assert curriculum.config.data == pytest.approx((0.145, 0.855))
    (past,) = curriculum.history
    rows = past.evidence.by_kind
    assert [(row.n, row.groups, row.valid, row.truncated) for row in rows] == [(24, 6, 24, 0), (24, 6, 12, 0)]
    assert [row.advantage for row in rows] == [0, 0.5]
    assert past.evidence.answer_tokens > len(NO_PLAN)


def test_verls_loader_saves_and_resumes_the_rows(trainer, config, tokenizer):
    """Through the ends of two rounds; verl saves the loader's state alone."""
    for _ in range(2):
        trainer.step()
    state = copy.deepcopy(trainer.loader.state_dict())
    resumed = Trainer(config, tokenizer)
    resumed.loader.load_state_dict(state)
    assert [resumed.step() for _ in range(6)] == [trainer.step() for _ in range(6)]
    assert resumed.dataset.state_dict() == trainer.dataset.state_dict()


def test_what_verl_validates_on_are_rows_of_a_file(config, tokenizer, tmp_path):
    boards = generate(LakeConfig.uniform((3, 4), hole=0.2, wait=0.3), jax.random.key(0), 6)
    rows = verl_rows(boards.instances, boards.solutions.cost, "test")
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "validation.parquet")
    validation = create_rl_dataset(str(tmp_path / "validation.parquet"), config, tokenizer, None)
    assert [validation[i]["reward_model"] for i in range(6)] == [row["reward_model"] for row in rows]
    assert validation.state_dict() == {}


def test_workers_that_would_copy_the_curriculum_are_refused_in_a_line(config, tokenizer):
    config.dataloader_num_workers = 8
    with pytest.raises(ValueError, match="^data.dataloader_num_workers = 8 must be 0: rows follow from the answers$"):
        create_rl_dataset(config.train_files, config, tokenizer, None)


def test_a_trainer_that_reports_nothing_is_told_in_a_line(trainer):
    """Else its rows would be drawn by the first configuration for good, and nobody would notice."""
    for row in range(24):
        trainer.dataset[row % 12]
    with pytest.raises(RuntimeError, match="^verl has reported no batch in two rounds: trainer.use_v1 must be False"):
        trainer.dataset[0]
