"""The command ``python -m rl``: lists the commands, and does nothing else; needs no extra."""

COMMANDS = """\
The trainer. Each command has --help with examples:

  python -m rl.train            train a policy in rounds, or resume a run
  python -m rl.evaluate         let a policy answer the fixed boards
  python -m rl.compare          compare environment engineers over seeds
  python -m rl.plan             does a configuration fit on these devices?
  python -m rl.report           write the page of a run or comparison

A first run:  python -m rl.train
They need     pip install 'jaxlake[train]'"""

if __name__ == "__main__":
    print(COMMANDS)
