"""Evaluations on the fixed suites: `answer_suite` has them answered, `evaluate` judges, `report` shows."""

from rl.evaluation.answering import answer_suite
from rl.evaluation.record import Answer, Record
from rl.evaluation.report import to_markdown, to_text
from rl.evaluation.scoring import Evaluation, evaluate, score_answers
from rl.evaluation.sources import ApiSource, PolicySource, Source

__all__ = [
    "Answer",
    "ApiSource",
    "Evaluation",
    "PolicySource",
    "Record",
    "Source",
    "answer_suite",
    "evaluate",
    "score_answers",
    "to_markdown",
    "to_text",
]
