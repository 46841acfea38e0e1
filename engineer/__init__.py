"""Evidence in, next configuration out; text generation is handed in as a function, and no model lives here."""

from engineer.context import Module, PastRound, Training, build
from engineer.engineers import CheckpointEngineer, Engineer, Generate, Generation, RandomEngineer
from engineer.evidence import Evidence, SizeEvidence, gather, wilson
from engineer.proposal import Proposal, grammar

__all__ = [
    "CheckpointEngineer",
    "Engineer",
    "Evidence",
    "Generate",
    "Generation",
    "Module",
    "PastRound",
    "Proposal",
    "RandomEngineer",
    "SizeEvidence",
    "Training",
    "build",
    "gather",
    "grammar",
    "wilson",
]
