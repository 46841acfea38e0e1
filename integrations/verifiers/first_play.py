"""A model that `python -m rl.train` saved plays boards turn by turn, through `transformers` and from the text alone.

python integrations/verifiers/first_play.py runs/turns            greedy, 100 boards of the fixed test set
python integrations/verifiers/first_play.py runs/turns --boards 20

It needs this package, torch, transformers and the trainer, whose own moves are compared with these.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
import torch
from jaxlake_mapf.turns import Game
from transformers import AutoModelForCausalLM, AutoTokenizer

from jaxlake import Action, benchmark, verify
from jaxlake.adapters.text import tasks
from rl import config as run_config
from rl import students
from rl.judge.answers import GREEDY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--boards", type=int, default=100, help="(default: 100)")
    options = parser.parse_args()
    suite = benchmark.load("test")
    suite = benchmark.take(suite, benchmark.spread(suite)[: options.boards])
    config, folder = run_config.load(options.run / "config.yaml"), options.run / "final"
    player = students.load(config, folder, suite.instances, print)
    answers = player.answer(suite.instances, 1, GREEDY, jax.random.key(0), lambda done: None)
    expected = np.asarray(verify(suite.instances, answers.plans, suite.optimum).valid)

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    moves = tokenizer.convert_tokens_to_ids([f" move: {action.name.lower()}" for action in Action])
    same = solved = masked = 0
    for i, (_, level) in enumerate(tasks(suite.instances, suite.optimum)):
        game = Game(level, config.student.episode_steps)
        while not game.over:
            ids = tokenizer(game.message.partition(": ")[2], add_special_tokens=False, return_tensors="pt").input_ids
            with torch.no_grad():
                logits = model(ids).logits[0, -1, moves].numpy()
            legal = game.legal
            masked += not legal[int(np.argmax(logits))]  # the text does not tell the edge of the board from a hole
            game.play(Action(int(np.argmax(np.where(legal, logits, -np.inf)))).name)
        found = game.outcome()
        solved += found["solved"]
        same += (found["steps"], bool(found["solved"])) == (float(answers.lengths[i]), bool(expected[i]))
    print(
        json.dumps(
            {
                "boards": len(suite),
                "solved": solved,
                "by the trainer": int(expected.sum()),
                "same": same,
                "off the board": masked,
            }
        )
    )


if __name__ == "__main__":
    main()
