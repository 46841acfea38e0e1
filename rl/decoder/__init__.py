"""Dense decoders in Flax: its shapes, weights, tokenizer, adapters, attention, sharding, and log-probs of answers."""
