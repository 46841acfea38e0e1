"""The command ``python -m rl``: says which commands there are, and does nothing else; needs no extra."""

COMMANDS = """\
The trainer. Each command has --help with examples:

  python -m rl.train            train a policy in rounds, or go on with a run
  python -m rl.evaluate         answer the fixed boards, tell what it is worth
  python -m rl.compare          compare environment engineers over seeds
  python -m rl.branch           what would designs gain from a run's last state?
  python -m rl.plan             does a configuration fit on these devices?
  python -m rl.report           one page on a run, several or a comparison

A first run:  python -m rl.train
They need     pip install 'jaxlake[train]'"""

if __name__ == "__main__":
    print(COMMANDS)
