"""Writes a checkpoint and the logits of the reference implementation on it; needs torch, the tests do not.

python tests/rl/qwen3/make_golden.py
"""

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

DATA = Path(__file__).parent / "data"


def main() -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=48,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rope_parameters={"rope_type": "default", "rope_theta": 5e6},
        tie_word_embeddings=True,
        max_position_embeddings=64,
    )
    model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if "norm" in name else 0.3 * noise)
    model.save_pretrained(DATA / "qwen3")
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, config.vocab_size, (3, 17))
    mask = np.arange(17) >= np.array([0, 5, 11])[:, None]  # left padding
    with torch.no_grad():
        logits = model(torch.tensor(tokens), attention_mask=torch.tensor(mask.astype(int))).logits.numpy()
    np.savez_compressed(DATA / "qwen3_logits.npz", tokens=tokens.astype(np.int32), mask=mask, logits=logits)


if __name__ == "__main__":
    main()
