"""Groups of answers that are compared with each other: those to one instance, in one role, under one configuration."""

import enum

import numpy as np

from jaxlake.record import Array, Record, record


class Role(enum.IntEnum):
    """Part that the policy was asked to play."""

    PLANNER = 0
    ENGINEER = 1


@record
class Groups(Record):
    """The group of each of ``B`` answers; equal in all three fields means one group.

    Never by the prompt's text: two instances can read the same, and one instance reads the same in every round that
    draws it, while the policy and the boards around it have changed.

    Attributes:
      version: int32 ``[B]``, number of the configuration, which is the round's.
      instance: int32 ``[B]``, index among the instances of that round.
      role: int32 ``[B]``, of `Role`.
    """

    version: Array
    instance: Array
    role: Array

    def ids(self) -> np.ndarray:
        """Number the groups in ascending order of version, instance and role: int32 ``[B]`` from 0 on."""
        keys = np.stack([self.version, self.instance, self.role], axis=1)
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
