"""The position of a run: plain values that are saved beside the arrays of its student."""

import dataclasses
from typing import Any

LOGS = ("metrics.jsonl", "timings.jsonl")
"""Files that grow by a row a step: what was computed, and what was measured by the clock or about the process."""


@dataclasses.dataclass
class Progress:
    """Position of a run; plain JSON values, saved in the same atomic step as the arrays.

    There is no state of a random generator in it: every key comes from (seed, purpose, round, step) alone
    (`rl.run.keys.make_key`).

    Attributes:
      stage: "warm_start", "rounds" or "finished".
      round, step: next ones to do; `step` counts within the stage or round.
      cursor: instances of the round consumed so far, over its epochs.
      skipped: updates in a row that were not finite and changed nothing.
      total_steps: steps of the whole run, which are rows of metrics.jsonl.
      short_share: moving share of short answers, which sets the weights of the reward; None before the first.
      training: running sums of the answers of the round under way (`engineer.evidence.add`); None before the first.
        They move with `cursor`, so that none of them counts twice.
      lake: configuration of the round under way, None if it is still to be designed.
      history: finished rounds, as `engineer.PastRound.from_json` reads them; their configurations are as realised.
      best: the best validation after the warm start and the rounds: {"round" (or "warm_start"), "sampled_valid"}; None
        before the first.
      log_bytes: length of each of the `LOGS` at this point; what came later is cut off on resuming.
    """

    stage: str = "warm_start"
    round: int = 0
    step: int = 0
    cursor: int = 0
    skipped: int = 0
    total_steps: int = 0
    short_share: float | None = None
    training: dict[str, Any] | None = None
    lake: dict[str, Any] | None = None
    rationale: str = ""
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best: dict[str, Any] | None = None
    log_bytes: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    def __str__(self) -> str:
        stage = "warm start" if self.stage == "warm_start" else f"round {self.round}"
        return f"{stage}, after step {self.step}"

    def begin_round(self, lake: dict[str, Any], rationale: str) -> None:
        """Note the configuration of the round that begins, and what its engineer thought."""
        self.lake, self.rationale, self.training = lake, rationale, None

    def end_round(self, realised: dict[str, Any], evidence: dict[str, Any]) -> None:
        """Add the trained and validated round to the history, and begin the next."""
        self.history.append(
            {"round": self.round, "config": realised, "evidence": evidence, "rationale": self.rationale}
        )
        self.round, self.step, self.cursor = self.round + 1, 0, 0
        self.lake, self.rationale, self.training = None, "", None
