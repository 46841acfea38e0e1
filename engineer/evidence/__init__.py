"""Numbers on the policy from a validation and a round's training; no wording and no pictures."""

from engineer.evidence.answers import Sums, add, evidence_from_verdicts, training_evidence, wilson
from engineer.evidence.boards import environment, trajectory, typical_failures
from engineer.evidence.types import (
    CHECKS,
    LEARNABLE,
    VERSION,
    Evidence,
    KindEnvironment,
    KindEvidence,
    TrainingEvidence,
    Trajectory,
)

__all__ = [
    "CHECKS",
    "LEARNABLE",
    "VERSION",
    "Evidence",
    "KindEnvironment",
    "KindEvidence",
    "Sums",
    "TrainingEvidence",
    "Trajectory",
    "add",
    "environment",
    "evidence_from_verdicts",
    "training_evidence",
    "trajectory",
    "typical_failures",
    "wilson",
]
