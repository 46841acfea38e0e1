"""Experiments: engineers by seeds, designs from one state, and a model that learns from the measured gains."""
