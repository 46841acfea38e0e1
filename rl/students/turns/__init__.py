"""A student that moves turn by turn: a small network or a language model as the actor, the rest shared."""

from pathlib import Path

from rl.config import Config, NetworkSection
from rl.students.turns import language, network
from rl.students.turns.language import LanguagePlayer
from rl.students.turns.network import NetworkPlayer
from rl.students.turns.student import Player, PlayerStudent

__all__ = ["LanguagePlayer", "NetworkPlayer", "Player", "PlayerStudent", "load_player"]


def load_player(config: Config, folder: Path) -> Player:
    """Read what a player of this configuration saved."""
    return (network if isinstance(config.student, NetworkSection) else language).load_player(config, folder)
