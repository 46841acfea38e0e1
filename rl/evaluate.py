"""The command `python -m rl.evaluate`: answers of a run, a checkpoint or a model behind an API to the fixed suites."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from jaxlake.benchmark import load, spread, take
from jaxlake.commands import command_parser, local_path
from jaxlake.files import write_whole
from rl import config as config_
from rl import distributed
from rl.command import add_job_options, guarded, join, parse, shipped
from rl.config import Config, ConfigError, LoRASection, RunError
from rl.evaluation import (
    ApiSource,
    Evaluation,
    PolicySource,
    Source,
    answer_suite,
    evaluate,
    reading,
    to_markdown,
    to_text,
)
from rl.evaluation.writers import ApiWriter, PolicyWriter
from rl.policy import Policy
from rl.qwen3 import presets
from rl.run.keys import Purpose, make_key
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.sampler import SamplingParams

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient

SUITES = {"validation": "validation", "benchmark": "test", "families": "families"}
"""Names of the suites, and of their sets."""
SHIPPED = ("qwen3-4b.yaml", "qwen3-0.6b.yaml", "small.yaml", "tiny.yaml")
"""Configurations to look through for one that fits a checkpoint; the first where none does."""

TIMEOUT = 600
"""Seconds for one answer of a server: 8,192 tokens at 14 a second."""
CONCURRENCY = 8
"""Requests to a server that are under way at once."""

_DESCRIPTION = """\
Has a policy answer a fixed suite, and scores the answers: valid, optimal and
optimal of the valid per number of agents, board size and wait subset, with
95 % intervals, answer lengths, and the paper's figures beside them.

Every answer is kept: the same command goes on where it was stopped or killed,
and with a higher --limit it asks only for what is new.

With --reading it is asked as an environment engineer instead: 400 tables of
evidence whose answers are known, each in three forms. Are its words right, do
its numbers stand in the table, does its design follow?"""
_EPILOG = """\
suites:
  validation   800 boards with 2 agents
  benchmark    3,150 boards with 3 to 5, the paper's by its description
  families     2,250 boards of seven families with 2 to 5

in the folder of the evaluation:
  report.md, scores.json   the tables
  reading.md, .json        of --reading
  answers.jsonl            every answer; python -m jaxlake.score reads a suite's
  evaluation.json          whose answers they are, and how they were asked for
  greedy/                  of a checkpoint that thinks: greedy answers beside
                           the sampled ones, which are the headline

exit status:
  0 done, 1 some answers are missing, 2 a mistake in the command or the
  configuration, 130 stopped by Ctrl-C

KEY is such as text.max_new_tokens or validation.top_p; python -m rl.train
--help lists them all. The key of a server is in OPENAI_API_KEY.

examples:
  python -m rl.evaluate --run runs/tiny --suite validation
  python -m rl.evaluate --run runs/tiny --suite benchmark --samples 8
  python -m rl.evaluate --model Qwen/Qwen3-4B --suite benchmark --limit 315
  python -m rl.evaluate --api http://localhost:8000/v1 MODEL --suite validation
  python -m rl.evaluate --run runs/tiny --reading
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Have a policy answer the fixed boards, and write its tables; return the exit code, see `rl.command.guarded`."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(_parser(), arguments)

    def work(stop: Stop) -> None:
        join(options, stop)
        with Display(quiet=not distributed.is_main()) as display, stop.interrupt_immediately():
            run(options, display, stop)

    return guarded("rl.evaluate", arguments, work)


def run(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    """Ask for the answers that are missing and write the report.

    Raises:
      ConfigError: for a mistake of the user's.
      RunError: if some requests to an API stay without an answer.
      Interrupted: on a signal, with all answers kept that have come.
    """
    _check(options)
    config, label, folder = _subject(options)
    if options.reading:
        reading.run(_writer(options, config, label, display.say), config, label, options.limit, folder, display, stop)
        return
    sampling = _sampling(options, config)
    suite = load(SUITES[options.suite])
    suite = take(suite, spread(suite))
    asked = take(suite, range(min(options.limit or len(suite), len(suite))))
    source: Source
    greedy: PolicySource | None = None
    if options.api:
        source = ApiSource(
            _client(options), config, sampling, options.samples, options.concurrency or CONCURRENCY, display.say
        )
    else:
        source = policy = PolicySource(config, label, suite, sampling, options.samples, display.say)
        if config.text.thinking and options.temperature is None:
            greedy = policy.greedy()

    def answered(source: Source, folder: Path, task: str) -> Evaluation | None:
        """Return the scores of a source's answers; None on all processes but the first."""
        identity = {
            "suite": options.suite,
            "sha256": suite.account["sha256"],
            "style": config.text.model_dump(mode="json")["style"],
            **source.identity(),
        }
        record = answer_suite(source, asked, folder, identity, display, stop, task)
        if record is None:
            return None
        about = {"model": label, **record.about}
        return evaluate(asked, record.answers, source.samples, config.lake.objective, about)

    result = answered(source, folder, "answers")
    beside = answered(greedy, folder / "greedy", "greedy answers") if greedy else None
    if result is None:
        return
    result = dataclasses.replace(result, greedy=beside)
    write_whole(folder / "scores.json", (json.dumps(result.to_json(), indent=1) + "\n").encode())
    write_whole(folder / "report.md", to_markdown(result).encode())
    display.say(f"\n{to_text(result)}\n\nReport: {folder / 'report.md'}")
    if missing := len(asked) * options.samples - int(result.scores.answers.sum()):
        (identifier, sample), reason = next(iter(source.failures.items()))
        raise RunError(
            f"{missing:,} answers are missing, such as number {sample} to {identifier}: {reason}; the same command "
            "asks for them again"
        )


def _check(options: argparse.Namespace) -> None:
    """Refuse options that have no meaning, or none together."""
    for name in ("limit", "samples", "concurrency", "timeout"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be at least 1")
    if options.temperature is not None and not 0 <= options.temperature < float("inf"):
        raise ConfigError(f"--temperature {options.temperature:g}: must be a number from 0 on")
    if options.samples > 1 and options.temperature == 0:
        raise ConfigError(f"--samples {options.samples} --temperature 0: greedy answers to a board are all the same")
    if options.reading and (options.samples > 1 or options.temperature is not None):
        raise ConfigError("--reading: --samples and --temperature are for --suite; engineer.temperature=T is its own")
    if not options.api and (options.concurrency or options.timeout or options.key_env):
        raise ConfigError("--concurrency, --timeout and --key-env: only with --api")
    if options.run and options.config:
        raise ConfigError("--config: a run has its own configuration; give single keys, such as sampler.rows=32")


def _subject(options: argparse.Namespace) -> tuple[Config, str, Path]:
    """Return the configuration, the checkpoint or the server's model, and the evaluation's folder."""
    suite = (options.suite or "reading") + (f"_{options.samples}_samples" if options.samples > 1 else "")
    if options.run:
        if not (options.run / "config.yaml").exists():
            raise ConfigError(f"{options.run}: no run (it has no config.yaml); python -m rl.train makes one")
        config = config_.load(options.run / "config.yaml", options.overrides)
        if config.plays:
            raise ConfigError(
                f"--run {options.run}: what learned there is a network, which writes no answers; python -m rl.compare "
                "lets networks play the fixed boards"
            )
        kinds = [kind for kind in ("final", "best") if (options.run / kind).is_dir()]
        if not kinds:
            raise ConfigError(f"{options.run}: no policy there yet (neither final/ nor best/); the run writes them")
        path, folder = str(options.run / kinds[0]), options.run / "evaluations" / suite
    else:
        path = options.model or options.api[1]
        config = config_.load(options.config or shipped(_fitting(options.model)), options.overrides)
        whole = config.model.model_copy(update={"lora": LoRASection()})  # a run alone has adapters beside its model
        config = config.model_copy(update={"model": whole})
        folder = Path("evaluations") / Path(path).name / suite
    return config, path, options.out or folder


def _fitting(model: str | None) -> str:
    """Find the shipped configuration that names this checkpoint, or has a model of its shape."""
    if model is None:
        return SHIPPED[0]
    for name in SHIPPED:
        settings = config_.load(shipped(name)).model
        if settings.path == model:
            return name
        if (Path(model) / "config.json").is_file() and settings.shape is not None:
            dtype = jax.numpy.dtype(settings.dtype)
            if presets.read_config(Path(model), dtype) == presets.shape_of(settings.shape, dtype):
                return name
    return SHIPPED[0]


def _sampling(options: argparse.Namespace, config: Config) -> SamplingParams:
    """Return greedy sampling for one answer to a board, that of `validation` for several; or by --temperature.

    With thinking that of `validation` for one, too: greedy thoughts run in circles, and the authors of Qwen3 advise
    against them.
    """
    settings, temperature = config.validation, options.temperature
    if temperature is None:
        temperature = settings.temperature if options.samples > 1 or config.text.thinking else 0.0
    return SamplingParams(temperature, settings.top_k, settings.top_p) if temperature else SamplingParams(0.0)


def _writer(options: argparse.Namespace, config: Config, label: str, say: Callable[[str], None]) -> reading.Writer:
    """Return who writes the responses of the reading test."""
    if options.api:
        return ApiWriter(_client(options), config, options.concurrency or CONCURRENCY, say)
    if jax.distributed.is_initialized():
        raise ConfigError("--reading: one process asks; start it alone")
    return PolicyWriter(*Policy.load(config, label, make_key(config.seed, Purpose.PARAMETERS)))


def _client(options: argparse.Namespace) -> "ChatClient":
    from rl.sampler.api import ChatClient  # takes 1.7 s, and needs a package that not everyone has

    if jax.distributed.is_initialized():
        raise ConfigError("--api: one process asks; start it alone")
    name = options.key_env or "OPENAI_API_KEY"
    if options.key_env and not os.environ.get(name):
        raise ConfigError(f"--key-env {name}: there is no such environment variable, or it is empty")
    url, model = options.api
    return ChatClient(url, model, os.environ.get(name), key_name=name, timeout=options.timeout or TIMEOUT)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.evaluate", _DESCRIPTION, _EPILOG)
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "--run", type=local_path, metavar="DIR", help="a run's policy: final/, or best/ where it is not done"
    )
    subject.add_argument("--model", metavar="PATH", help="a checkpoint: a folder, or an id of the Hugging Face hub")
    subject.add_argument(
        "--api",
        nargs=2,
        metavar=("URL", "MODEL"),
        help="a server of chat completions, such as http://localhost:8000/v1; needs pip install 'jaxlake[api]'",
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--suite", choices=SUITES, metavar="SUITE", help="boards to answer: see below")
    asked.add_argument("--reading", action="store_true", help="ask for designs of environments: does it read?")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="so many boards, evenly from all cells, or tables drawn and as many real ones (default: all)",
    )
    parser.add_argument(
        "--samples", type=int, default=1, metavar="K", help="answers to each board, which give pass@k (default: 1)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="0 is greedy (default: 0 for one answer, validation.temperature for several and with thinking)",
    )
    parser.add_argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder of the evaluation (default: DIR/evaluations/SUITE of the run, else evaluations/MODEL/SUITE)",
    )
    parser.add_argument(
        "--config",
        type=local_path,
        metavar="FILE",
        help="prompt style, lengths and the like for --model and --api (default: the shipped one that fits the "
        f"checkpoint, else {SHIPPED[0]})",
    )
    api = parser.add_argument_group("with --api")
    api.add_argument(
        "--concurrency", type=int, metavar="N", help=f"requests under way at once (default: {CONCURRENCY})"
    )
    api.add_argument("--timeout", type=int, metavar="S", help=f"seconds for one answer (default: {TIMEOUT})")
    api.add_argument("--key-env", metavar="NAME", help="environment variable with the key (default: OPENAI_API_KEY)")
    add_job_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="values that override the configuration's")
    return parser


if __name__ == "__main__":
    sys.exit(main())
