"""Students that move turn by turn: a small network or a language model as the actor, the rest shared."""
