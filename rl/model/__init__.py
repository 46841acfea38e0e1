"""The language model: decoder, weights, tokenizer, adapters, attention, sharding, sampler, and the policy over them."""
