"""A small network that plays the boards itself: a student that learns in seconds."""

from rl.students.network.student import NetworkStudent

__all__ = ["NetworkStudent"]
