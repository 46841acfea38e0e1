"""Evidence in, next configuration out; text generation is handed in as a function, and no model lives here."""

from engineer.context import VARIANTS, Context, Module, PastRound, Template, Training, modules
from engineer.engineers import RULES
from engineer.engineers.base import Engineer, Pilot, RandomEngineer, RuleEngineer
from engineer.engineers.hindsight import Hindsight
from engineer.engineers.language import Generate, Generation, LanguageEngineer, NoAnswer
from engineer.evidence import Evidence, KindEvidence, evidence_from_verdicts
from engineer.gate import Gated
from engineer.proposal import Proposal, grammar

__all__ = [
    "RULES",
    "VARIANTS",
    "Context",
    "Engineer",
    "Evidence",
    "Gated",
    "Generate",
    "Generation",
    "Hindsight",
    "KindEvidence",
    "LanguageEngineer",
    "Module",
    "NoAnswer",
    "PastRound",
    "Pilot",
    "Proposal",
    "RandomEngineer",
    "RuleEngineer",
    "Template",
    "Training",
    "evidence_from_verdicts",
    "grammar",
    "modules",
]
