"""A run on disk and in memory: its state, keys, boards, validation, checkpoints, folder, tracking and signals."""
