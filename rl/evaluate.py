"""The command `python -m rl.evaluate`: answers of a run, a checkpoint or a model behind an API to the fixed suites."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from jaxlake import benchmark
from jaxlake.commands import command_parser
from jaxlake.files import write_whole
from rl import config as config_
from rl import distributed, students
from rl.command import add_job_options, add_path, guarded, join, parse, shipped
from rl.config import Config, ConfigError, LoRASection, NetworkSection, RunError, TextSection, ValidationSection
from rl.judge.asking import Asker, ModelAsker, ServerAsker, collect
from rl.judge.suite import Evaluation, questions, suite_identity
from rl.model.sampler import SamplingParams
from rl.run.directory import refuse_other_version
from rl.run.signals import Stop
from rl.run.tracking import Display

SUITES = {"validation": "validation", "benchmark": "test", "families": "families"}
"""The suites, and the fixed set of each."""
SHIPPED = "qwen3-4b.yaml"
"""The configuration for a checkpoint or a server without ``--config``."""

_DESCRIPTION = """\
Lets a policy answer a fixed suite, and scores the answers: the valid, the
optimal, and the optimal among the valid, per number of agents, board size and
wait subset or family, with standard errors, pass@k, and the paper's figures.

The folder keeps every answer. Rerun the same command to resume; a higher
--limit asks only for the new answers."""
_EPILOG = """\
suites:
  validation   800 boards with 2 agents
  benchmark    3,150 boards with 3 to 5, the paper's from its description
  families     2,250 boards of seven families with 2 to 5

Exit status 1 says that some answers are missing. python -m jaxlake.score reads
answers.jsonl of the evaluation's folder, too.

A KEY is a setting such as validation.top_p or student.text.max_new_tokens;
python -m rl.train --help lists them all. The variable OPENAI_API_KEY contains
the key of a server.

examples:
  python -m rl.evaluate --run runs/tiny --suite validation
  python -m rl.evaluate --run runs/tiny --suite benchmark --samples 8
  python -m rl.evaluate --model Qwen/Qwen3-4B --suite benchmark --limit 315
  python -m rl.evaluate --api http://localhost:8000/v1 MODEL --suite validation
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Let a policy answer the fixed boards, and write its tables; return the exit code, see `rl.command.guarded`."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(_parser(), arguments)

    def work(stop: Stop) -> None:
        join(options, stop)
        with Display(quiet=not distributed.is_main()) as display, stop.interrupt_immediately():
            evaluate(options, display, stop)

    return guarded("rl.evaluate", arguments, work)


def evaluate(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    """Let a policy answer the boards as the options say, and write and show its tables."""
    if options.run:
        if options.config:
            raise ConfigError("--config: a run has its own configuration; give single keys as KEY=VALUE")
        config, model, folder = _trained(options.run, options.overrides)
    else:
        model = options.model or options.api[1]
        config, folder = _as_loaded(options.config, options.overrides), Path("evaluations", Path(model).name)
    samples, text, seed = options.samples, config.student.text, config.seed
    folder = options.out or folder / (options.suite + f"_{samples}_samples" * (samples > 1))
    boards = benchmark.load(SUITES[options.suite])
    boards = benchmark.take(boards, benchmark.spread(boards))
    part = benchmark.take(boards, range(len(boards))[: options.limit])
    sampling = _sampling(config.validation, text.thinking, samples, options.temperature)
    asker: Asker
    if options.api:
        asker = _ask_server(options.api[0], model, options.concurrency, text, sampling, display)
    else:
        answerer = students.load(config, model, boards.instances, display.say)
        asker = ModelAsker(answerer, boards, sampling, samples, seed)
    identity = {"suite": options.suite, "sha256": boards.account["sha256"], "style": str(text.style)}
    identity |= suite_identity(text, seed, sampling, samples)
    record = collect(asker, questions(text, seed, part, samples), folder, identity, display, stop)
    if record is None:  # another process has the answers
        return
    result = Evaluation.of(part, record.answers, {"model": model, **record.about})
    tables, path = result.to_text(), folder / "report.txt"
    write_whole(folder / "scores.json", (json.dumps(result.to_json(), indent=1) + "\n").encode())
    write_whole(path, f"{tables}\n".encode())
    display.say(f"\n{tables}\n\nReport: {path}")
    if missing := sum((name, i) not in record.answers for name in part.ids for i in range(samples)):
        raise RunError(f"{missing:,} answers are missing, the last as {asker.failure}; the same command asks again")


def _trained(run: Path, overrides: Sequence[str]) -> tuple[Config, str, Path]:
    """Return the configuration of a run, its policy, and the folder of its evaluations."""
    if not (run / "config.yaml").exists():
        raise ConfigError(f"{run}: no run (it has no config.yaml); python -m rl.train makes one")
    refuse_other_version(run, {})
    policies = [run / name for name in ("final", "best") if (run / name).is_dir()]
    if not policies:
        raise ConfigError(f"{run}: no policy there yet (neither final/ nor best/); the run writes them")
    return config_.load(run / "config.yaml", overrides), str(policies[0]), run / "evaluations"


def _as_loaded(file: Path | None, overrides: Sequence[str]) -> Config:
    """Return the configuration for a checkpoint or a server's model: only a run has adapters beside its model."""
    config = config_.load(file or shipped(SHIPPED), overrides)
    student = config.student
    if isinstance(student, NetworkSection):
        raise ConfigError("student.kind = network has no checkpoint of its own and no server; give --run")
    model = student.model.model_copy(update={"lora": LoRASection()})
    return config.model_copy(update={"student": student.model_copy(update={"model": model})})


def _sampling(settings: ValidationSection, thinking: bool, samples: int, temperature: float | None) -> SamplingParams:
    """Return greedy sampling for one answer to a board, that of `validation` for several, or by a temperature.

    With thinking one answer is sampled, too: greedy thoughts run in circles, and the authors of Qwen3 advise against
    them.
    """
    if temperature is None:
        temperature = settings.temperature if samples > 1 or thinking else 0.0
    return SamplingParams(temperature, settings.top_k, settings.top_p) if temperature else SamplingParams(0.0)


def _ask_server(
    url: str, model: str, concurrency: int, text: TextSection, sampling: SamplingParams, display: Display
) -> ServerAsker:
    """Return a server's model, which has answered a first small question."""
    from rl.judge.server import ChatClient  # takes 1.7 s, and needs a package that not everyone has

    if jax.distributed.is_initialized():
        raise ConfigError("--api: one process asks; start it alone")
    client = ChatClient(url, model, sampling, text.max_new_tokens, text.thinking)
    client.check(display.say)
    return ServerAsker(client, concurrency)


def _at_least(least: float, kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        if not (value := kind(text)) >= least:
            raise argparse.ArgumentTypeError(f"{text}: must be at least {least:g}")
        return value

    return number


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.evaluate", _DESCRIPTION, _EPILOG)
    subject, add = parser.add_mutually_exclusive_group(required=True), parser.add_argument
    add_path(subject, "--run", "DIR", "folder of a run; its policy is final/, or best/ of an unfinished run")
    subject.add_argument("--model", metavar="PATH", help="checkpoint: a folder, or an id of the Hugging Face hub")
    server = "server of chat completions, such as http://localhost:8000/v1; needs pip install 'jaxlake[api]'"
    subject.add_argument("--api", nargs=2, metavar=("URL", "MODEL"), help=server)
    add("--suite", required=True, choices=SUITES, metavar="SUITE", help="boards to answer, see below")
    count = _at_least(1, int)
    add("--limit", type=count, metavar="N", help="number of boards, evenly from all cells (default: all)")
    add("--samples", type=count, default=1, metavar="K", help="answers to each board, for pass@k (default: 1)")
    temperature = "0 is greedy (default: 0 for one answer, validation.temperature for several or with thinking)"
    add("--temperature", type=_at_least(0, float), metavar="T", help=temperature)
    out = "folder of the evaluation (default: DIR/evaluations/SUITE of the run, else evaluations/MODEL/SUITE)"
    add_path(parser, "--out", "DIR", out)
    config = f"YAML file of the prompt style, lengths and more, for --model and --api (default: the shipped {SHIPPED})"
    add_path(parser, "--config", "FILE", config)
    add("--concurrency", type=count, default=8, metavar="N", help="requests to the server at once (default: 8)")
    add_job_options(parser)
    add("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the configuration")
    return parser


if __name__ == "__main__":
    sys.exit(main())
