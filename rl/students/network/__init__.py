"""A small network that plays the boards itself: a student that learns in seconds."""

from rl.students.network.student import NetworkStudent, Player, ran_out

__all__ = ["NetworkStudent", "Player", "ran_out"]
