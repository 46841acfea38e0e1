"""The command ``python -m jaxlake_reasoning_gym``: three questions, and what a right and a wrong answer are worth."""

import reasoning_gym

from jaxlake_reasoning_gym import DATASET_NAME

dataset = reasoning_gym.create_dataset(DATASET_NAME, size=3, seed=42)
for entry in dataset:
    print(entry["question"], entry["answer"], sep="\n\n")
    print(dataset.score_answer(entry["answer"], entry), dataset.score_answer("0:(0,0)(0,1)", entry), end="\n\n")
