"""Multi-agent path finding for reasoning-gym: importing this registers the dataset ``multi_agent_path_finding``."""

from reasoning_gym.factory import register_dataset

from jaxlake_reasoning_gym.dataset import (
    DATASET_NAME,
    MultiAgentPathFindingConfig,
    MultiAgentPathFindingCurriculum,
    MultiAgentPathFindingDataset,
)

__all__ = [
    "DATASET_NAME",
    "MultiAgentPathFindingConfig",
    "MultiAgentPathFindingCurriculum",
    "MultiAgentPathFindingDataset",
]

register_dataset(
    DATASET_NAME, MultiAgentPathFindingDataset, MultiAgentPathFindingConfig, MultiAgentPathFindingCurriculum
)
