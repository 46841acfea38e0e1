"""A student that moves turn by turn: a small network or a language model as the actor, the rest shared."""

from rl.students.player.players import LanguagePlayer, NetworkPlayer, load_player
from rl.students.player.student import OTHER_KINDS_WEIGHT, Player, PlayerStudent

__all__ = ["OTHER_KINDS_WEIGHT", "LanguagePlayer", "NetworkPlayer", "Player", "PlayerStudent", "load_player"]
