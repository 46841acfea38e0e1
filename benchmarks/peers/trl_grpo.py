"""TRL's GRPOTrainer on a model folder, float32 on the CPU: a whole training for every line of JSON.

Arguments: the folder, and JSON of the settings that `trl_parity.py` shares with it. A request has the prompts in order,
as token numbers, their levels, and a seed. The answer: the mean reward of each step.
"""

import contextlib
import json
import sys
import tempfile

import torch
from datasets import Dataset
from protocol import serve_requests
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from jaxlake.adapters.text import judge

folder, settings = sys.argv[1], json.loads(sys.argv[2])


def optimal(completions: list[str], level: list[str], **_: object) -> list[float]:
    """Return 1 for an optimal plan and 0 for any other answer."""
    return judge(completions, level)[0].optimal.astype(float).tolist()


def train(tokens: list[list[int]], levels: list[str], seed: int) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    prompts = tokenizer.batch_decode(tokens)
    if tokenizer(prompts, add_special_tokens=False).input_ids != tokens:
        raise SystemExit("the peer's tokens of the prompts are others than ours")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = GRPOConfig(
            output_dir=scratch,
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            shuffle_dataset=False,
            max_steps=len(prompts) // settings["prompts"],
            per_device_train_batch_size=settings["prompts"] * settings["samples"],
            num_generations=settings["samples"],
            max_completion_length=settings["new_tokens"],
            temperature=1.0,
            beta=0.0,
            epsilon=settings["clip"],
            loss_type="dapo",  # the mean over the tokens of the batch
            scale_rewards="group",
            learning_rate=settings["learning_rate"],
            lr_scheduler_type="constant",
            weight_decay=0.0,
            adam_beta2=settings["adam_b2"],
            max_grad_norm=settings["max_gradient_norm"],
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=optimal,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": prompts, "level": levels}),
            processing_class=tokenizer,
        )
        with contextlib.redirect_stdout(sys.stderr):  # where it prints its metrics as Python's dictionaries
            trainer.train()
    return {"rewards": [row["reward"] for row in trainer.state.log_history if "reward" in row]}


serve_requests(train)
