"""Answers to boards, and what is made of their verdicts: validation, fixed suites, the reading test, statistics."""
