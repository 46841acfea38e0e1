"""The language model: decoder, weights, tokenizer, adapters, attention, sharding, sampler, and the policy over them."""

import os

# Its warnings advise to install PyTorch.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
