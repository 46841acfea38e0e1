"""Qwen3 in Flax: its shapes, weights, tokenizer, adapters, attention, sharding, and log-probs of answers."""
