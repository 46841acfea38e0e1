"""Algorithm 1: a student is trained and validated, and an engineer designs the next round from its failures."""
