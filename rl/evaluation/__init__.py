"""Evaluations: a model is asked, its answers are kept, and they are scored as plans or as an engineer's designs."""
