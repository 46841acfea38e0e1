"""What goes over the wire: actions, observations, state. Plays nothing."""

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field, model_validator


class LakeAction(Action):
    """A whole plan, or one move of every agent; exactly one of them."""

    plan: str | None = Field(None, description="Every agent's path, as the prompt asks for it; ends the episode")
    moves: str | None = Field(
        None,
        description="A letter of UDLRW (W waits) for each agent, in their order: RDW; or a word: right down wait",
    )

    @model_validator(mode="after")
    def _has_one(self) -> "LakeAction":
        if (self.plan is None) == (self.moves is None):
            raise ValueError("an action must have either plan or moves")
        return self


class LakeObservation(Observation):
    """A board, and how the agents stand on it.

    ``reward`` is the paper's accuracy in [0, 1], the same for a plan as for its moves: 0 until all agents are on their
    goals at once and for a plan that is not valid, 1 for the least sum of costs.
    """

    task: str = Field(description="Id of the board: agents, size, hole ratio, serial number")
    prompt: str = Field(description="The task in words, for a language model")
    board: str = Field(description="The board as it stands: # hole, a agent 0, A its goal, b agent 1, ...")
    legal_moves: list[str] = Field(description="For each agent the letters of UDLRW that lead onto a free cell")
    instructions: str = Field(description="The task in words, for a model that moves one agent by its view")
    views: list[str] = Field(description="For each agent what it sees in words, to answer with one word")
    solved: bool = Field(False, description="All agents are on their goals, by a valid plan or by moves")
    optimal: bool = Field(False, description="Solved at the least sum of costs")
    cost: int | None = Field(None, description="Sum of costs where solved")
    checks: dict[str, bool] = Field({}, description="Of a plan: which of the eight validity checks pass")


class LakeState(State):
    """Which board is played."""

    split: str = ""
    index: int | None = Field(None, description="Of the board in its split; None before the first reset")
