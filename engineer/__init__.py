"""Evidence in, next configuration out; text generation is handed in as a function, and no model lives here."""

from engineer.context import VARIANTS, Context, Module, PastRound, Template, Training, modules
from engineer.engineers import RULES
from engineer.engineers.base import Engineer, RuleEngineer
from engineer.engineers.controls import Renamed, Shuffled
from engineer.engineers.hindsight import Hindsight
from engineer.engineers.language import Generate, Generation, LanguageEngineer, NoAnswer
from engineer.evidence import Evidence, KindEvidence, evidence_from_verdicts
from engineer.proposal import Proposal, grammar

__all__ = [
    "RULES",
    "VARIANTS",
    "Context",
    "Engineer",
    "Evidence",
    "Generate",
    "Generation",
    "Hindsight",
    "KindEvidence",
    "LanguageEngineer",
    "Module",
    "NoAnswer",
    "PastRound",
    "Proposal",
    "Renamed",
    "RuleEngineer",
    "Shuffled",
    "Template",
    "Training",
    "evidence_from_verdicts",
    "grammar",
    "modules",
]
