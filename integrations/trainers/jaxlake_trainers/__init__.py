"""The environment engineer for other trainers: rounds of tasks, each designed from the answers to the last one's."""

from jaxlake_trainers.curriculum import EngineerCurriculum, LakeTask

__all__ = ["EngineerCurriculum", "LakeTask"]
