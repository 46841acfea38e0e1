"""The command ``python -m engineer``: says which command there is, and does nothing else."""

COMMANDS = """\
The environment engineer. Its command has --help with examples:

  python -m engineer.report     one page on a run, several or a comparison

Engineers design inside a run or a comparison; for their commands:  python -m rl"""

if __name__ == "__main__":
    print(COMMANDS)
