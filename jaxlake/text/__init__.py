"""Instances to prompts and answers to plans, in plain Python; knows no tokenizer and no model."""

from jaxlake.text.reading import Reading, parse, parse_batch, read
from jaxlake.text.writing import AnswerFormat, PromptStyle, answer, prompt

__all__ = ["AnswerFormat", "PromptStyle", "Reading", "answer", "parse", "parse_batch", "prompt", "read"]
