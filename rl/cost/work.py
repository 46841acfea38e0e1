"""What a configuration asks for: steps, answers and validations of a run of a language policy; knows no devices."""

import dataclasses

from rl.config import Config


@dataclasses.dataclass(frozen=True)
class Work:
    """Numbers of a whole run, were no prompt sampled anew (`grpo.resampling`).

    Attributes:
      steps: of GRPO, in all rounds.
      answers: of a step.
      validations: how often the validation's boards are answered: before the rounds and after each.
      validation_answers: of each, the greedy ones and the sampled.
    """

    steps: int
    answers: int
    validations: int
    validation_answers: int

    @property
    def trained_answers(self) -> int:
        """Number of answers that the steps train on."""
        return self.steps * self.answers

    @property
    def generated_answers(self) -> int:
        """Number of answers that are generated, those of validations among them."""
        return self.trained_answers + self.validations * self.validation_answers


def work_of(config: Config) -> Work:
    """Return what a configuration asks for."""
    rounds, settings = config.rounds, config.grpo
    return Work(
        steps=rounds.count * rounds.epochs * (rounds.instances // settings.prompts),
        answers=settings.prompts * settings.samples,
        validations=rounds.count + 1,
        validation_answers=config.validation.instances * (1 + config.validation.samples),
    )
