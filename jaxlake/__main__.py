"""The command ``python -m jaxlake``: lists the commands, and does nothing else."""

COMMANDS = """\
The environment. Each command has --help with examples:

  python -m jaxlake.generate    draw solvable boards to quotas
  python -m jaxlake.solve       find optimal plans
  python -m jaxlake.render      draw a board, in text or as a picture
  python -m jaxlake.benchmark   write the 6,200 fixed boards to files
  python -m jaxlake.score       score a model's answers to these boards

First boards:   python -m jaxlake.generate -o boards.jsonl
To train:       python -m rl, in a clone of github.com/jaxlake/jaxlake or where
                the distribution jaxlake-rl is installed"""

if __name__ == "__main__":
    print(COMMANDS)
