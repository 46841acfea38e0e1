"""Writes the reference implementation's logits on small checkpoints; needs torch, their test does not.

PYTHONPATH=tests/support python tests/rl/model/make_golden.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from families import CONFIGS, write_checkpoint
from transformers import AutoModelForCausalLM

DATA = Path(__file__).parent / "data"
FOLDERS = "tied", "untied"
"""Checkpoints of Qwen3 that `transformers` itself has written, in `DATA`."""


def main() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 48, (4, 17))
    before, after = np.array([0, 5, 11, 0]), np.array([0, 0, 2, 9])  # padding on the left, on the right, on both sides
    mask = (np.arange(17) >= before[:, None]) & (np.arange(17) < 17 - after[:, None])
    arrays = {"tokens": tokens.astype(np.int32), "mask": mask}
    positions = torch.tensor(np.maximum(np.cumsum(mask, axis=1) - 1, 0))
    with tempfile.TemporaryDirectory() as scratch:
        for name, raw in CONFIGS.items():
            write_checkpoint(Path(scratch) / name, raw)
        for folder in (*(DATA / name for name in FOLDERS), *(Path(scratch) / name for name in CONFIGS)):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            attended = torch.tensor(mask.astype(int))
            with torch.no_grad():
                logits = model(torch.tensor(tokens), attention_mask=attended, position_ids=positions).logits
            arrays[folder.name] = logits.numpy()
    np.savez_compressed(DATA / "logits.npz", **arrays)


if __name__ == "__main__":
    main()
