"""The command `python -m rl.evaluate`: answers of a run, a checkpoint or a model behind an API to the fixed suites."""

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from jaxlake import benchmark
from jaxlake.commands import command_parser
from jaxlake.files import write_whole
from rl import config as config_
from rl import distributed, students
from rl.command import add_job_options, add_path, guarded, join, parse, shipped
from rl.config import Config, ConfigError, LoRASection, RunError
from rl.judge import suite
from rl.judge.asking import Asker, board_asker, collect, suite_identity
from rl.loop.engineer_factory import make_client
from rl.model.sampler import SamplingParams
from rl.run.directory import check_format
from rl.run.signals import Stop
from rl.run.tracking import Display

SUITES = {"validation": "validation", "benchmark": "test", "families": "families"}
"""The suites, and the fixed set of each."""
SHIPPED = "qwen3-4b.yaml"
"""The configuration for a checkpoint or a server without ``--config``."""
CONCURRENCY = 8
"""Requests to a server that are under way at once."""

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

in the folder of the evaluation:
  report.txt, scores.json  the tables, and their numbers
  answers.jsonl            every answer; python -m jaxlake.score reads a suite's
  evaluation.json          the model, and the parameters of the question

exit status:
  0 done, 1 some answers are missing, 2 a mistake in the command or the
  configuration, 130 stopped by Ctrl-C

A KEY is a setting such as text.max_new_tokens or validation.top_p; python -m
rl.train --help lists them all. The variable that engineer.api.key_env names
(OPENAI_API_KEY) contains the key of a server.

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
            run(options, display, stop)

    return guarded("rl.evaluate", arguments, work)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that have no meaning, or none together: ConfigError naming them."""
    temperature = options.temperature
    for name in ("limit", "samples", "concurrency"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be at least 1")
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise ConfigError(f"--temperature {temperature:g}: must be a number from 0 on")
    if options.samples > 1 and temperature == 0:
        raise ConfigError(f"--samples {options.samples} --temperature 0: greedy answers to a board are all the same")
    if not options.api and options.concurrency:
        raise ConfigError("--concurrency: only with --api")
    if options.run and options.config:
        raise ConfigError("--config: a run has its own configuration; give single keys, such as sampler.rows=32")


def run(options: argparse.Namespace, display: Display, stop: Stop) -> None:
    """Ask for the answers that are missing and write the report.

    Raises:
      ConfigError: for a mistake of the user's.
      RunError: if some requests to an API stay without an answer.
      Interrupted: on a signal, with all answers kept that have come.
    """
    _check(options)
    config, label, folder = _subject(options)
    boards = benchmark.load(SUITES[options.suite])
    boards = benchmark.take(boards, benchmark.spread(boards))
    asked = benchmark.take(boards, range(min(options.limit or len(boards), len(boards))))
    sampling, samples = _sampling(options, config), options.samples
    if options.api:
        asker = _ask_server(options, config, sampling)
    else:
        answerer = students.load(config, label, boards.instances, display.say)
        asker = board_asker(answerer, boards, config, sampling, samples)
    identity = {"suite": options.suite, "sha256": boards.account["sha256"]}
    identity |= {"style": config.text.model_dump(mode="json")["style"]}
    record = collect(asker, suite.questions(config, asked, samples), folder, identity, display, stop)
    if record is None:  # another process has the answers
        return
    about = {"model": label, **record.about}
    result = suite.Evaluation.of(asked, record.answers, samples, config.lake.objective, about)
    text = result.to_text()
    write_whole(folder / "scores.json", (json.dumps(result.to_json(), indent=1) + "\n").encode())
    write_whole(folder / "report.txt", (text + "\n").encode())
    display.say(f"\n{text}\n\nReport: {folder / 'report.txt'}")
    if missing := len(asked) * samples - int(result.scores.answers.sum()):
        (identifier, sample), reason = next(iter(asker.failures.items()))
        raise RunError(
            f"{missing:,} answers are missing, such as number {sample} to {identifier}: {reason}; the same command "
            "asks for them again"
        )


def _subject(options: argparse.Namespace) -> tuple[Config, str, Path]:
    """Return the configuration, the checkpoint or the server's model, and the evaluation's folder."""
    name = options.suite + (f"_{options.samples}_samples" if options.samples > 1 else "")
    if options.run:
        if not (options.run / "config.yaml").exists():
            raise ConfigError(f"{options.run}: no run (it has no config.yaml); python -m rl.train makes one")
        check_format(options.run)
        config = config_.load(options.run / "config.yaml", options.overrides)
        kinds = [kind for kind in ("final", "best") if (options.run / kind).is_dir()]
        if not kinds:
            raise ConfigError(f"{options.run}: no policy there yet (neither final/ nor best/); the run writes them")
        path, folder = str(options.run / kinds[0]), options.run / "evaluations" / name
    else:
        path = options.api[1] if options.api else options.model or ""
        config = config_.load(options.config or shipped(SHIPPED), options.overrides)
        whole = config.model.model_copy(update={"lora": LoRASection()})  # a run alone has adapters beside its model
        config = config.model_copy(update={"model": whole})
        folder = Path("evaluations") / Path(path).name / name
    return config, path, options.out or folder


def _sampling(options: argparse.Namespace, config: Config) -> SamplingParams:
    """Return greedy sampling for one answer to a board, that of `validation` for several; or by --temperature.

    With thinking one answer is sampled, too: greedy thoughts run in circles, and the authors of Qwen3 advise against
    them.
    """
    settings, temperature = config.validation, options.temperature
    if temperature is None:
        temperature = settings.temperature if options.samples > 1 or config.text.thinking else 0.0
    return SamplingParams(temperature, settings.top_k, settings.top_p) if temperature else SamplingParams(0.0)


def _ask_server(options: argparse.Namespace, config: Config, sampling: SamplingParams) -> Asker:
    """Return a server's model as a player of boards."""
    from rl.judge.server import Request  # takes 1.7 s, and needs a package that not everyone has

    if jax.distributed.is_initialized():
        raise ConfigError("--api: one process asks; start it alone")
    url, model = options.api
    api = config.engineer.api.model_copy(update={"url": url, "model": model})
    client = make_client(config.engineer.model_copy(update={"api": api}))
    request = functools.partial(
        Request,
        temperature=sampling.temperature,
        max_tokens=config.text.max_new_tokens,
        thinking=config.text.thinking,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
    )
    identity = suite_identity(config, sampling, options.samples)
    return Asker.of_server(client, request, options.concurrency or CONCURRENCY, identity)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("rl.evaluate", _DESCRIPTION, _EPILOG)
    subject = parser.add_mutually_exclusive_group(required=True)
    add_path(subject, "--run", "DIR", "folder of a run; its policy is final/, or best/ of an unfinished run")
    subject.add_argument("--model", metavar="PATH", help="checkpoint: a folder, or an id of the Hugging Face hub")
    subject.add_argument(
        "--api",
        nargs=2,
        metavar=("URL", "MODEL"),
        help="server of chat completions, such as http://localhost:8000/v1; needs pip install 'jaxlake[api]'",
    )
    parser.add_argument("--suite", required=True, choices=SUITES, metavar="SUITE", help="boards to answer, see below")
    parser.add_argument("--limit", type=int, metavar="N", help="number of boards, evenly from all cells (default: all)")
    parser.add_argument(
        "--samples", type=int, default=1, metavar="K", help="answers to each board, for pass@k (default: 1)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="0 is greedy (default: 0 for one answer, validation.temperature for several or with thinking)",
    )
    out = "folder of the evaluation (default: DIR/evaluations/SUITE of the run, else evaluations/MODEL/SUITE)"
    add_path(parser, "--out", "DIR", out)
    config = f"YAML file of the prompt style, lengths and more, for --model and --api (default: the shipped {SHIPPED})"
    add_path(parser, "--config", "FILE", config)
    api = parser.add_argument_group("with --api")
    api.add_argument("--concurrency", type=int, metavar="N", help=f"requests at once (default: {CONCURRENCY})")
    add_job_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the configuration")
    return parser


if __name__ == "__main__":
    sys.exit(main())
