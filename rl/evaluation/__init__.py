"""Evaluations on the fixed suites: ``sources`` answer, ``record`` keeps, ``tables`` judges, ``report`` shows."""

from rl.evaluation.record import Answer, Record
from rl.evaluation.report import to_markdown, to_text
from rl.evaluation.sources import ApiSource, PolicySource
from rl.evaluation.tables import Evaluation, evaluate

__all__ = ["Answer", "ApiSource", "Evaluation", "PolicySource", "Record", "evaluate", "to_markdown", "to_text"]
