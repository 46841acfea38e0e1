"""Writes two small checkpoints and the reference implementation's logits on them; needs torch, their test does not.

python tests/rl/decoder/make_golden.py
"""

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

DATA = Path(__file__).parent / "data"
CASES = {
    "tied": {"rope_theta": 5e6, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "untied": {"rope_theta": 1e6, "num_key_value_heads": 1, "tie_word_embeddings": False},
}


def main() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 48, (4, 17))
    before, after = np.array([0, 5, 11, 0]), np.array([0, 0, 2, 9])  # padding on the left, on the right, on both sides
    mask = (np.arange(17) >= before[:, None]) & (np.arange(17) < 17 - after[:, None])
    arrays = {"tokens": tokens.astype(np.int32), "mask": mask}
    for name, case in CASES.items():
        torch.manual_seed(0)
        theta, others = case["rope_theta"], {key: value for key, value in case.items() if key != "rope_theta"}
        config = Qwen3Config(
            vocab_size=48,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            head_dim=8,
            max_position_embeddings=64,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            **others,
        )
        model = Qwen3ForCausalLM(config).eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(1 + 0.3 * noise if "norm" in parameter_name else 0.3 * noise)
            positions = torch.tensor(np.maximum(np.cumsum(mask, axis=1) - 1, 0))
            logits = model(
                torch.tensor(tokens), attention_mask=torch.tensor(mask.astype(int)), position_ids=positions
            ).logits
        model.save_pretrained(DATA / name)
        arrays[name] = logits.numpy()
    np.savez_compressed(DATA / "logits.npz", **arrays)


if __name__ == "__main__":
    main()
