"""Answers to boards, of students and of servers, and what is made of their verdicts: validation and fixed suites."""
