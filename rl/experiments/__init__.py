"""Experiments: what is tried, who works on it, and what came of it; designs from one state, engineers x seeds."""
