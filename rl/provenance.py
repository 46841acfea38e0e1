"""Where each value of a run's configuration comes from, as the comments of its file say: paper, inferred or ours."""

import re
from pathlib import Path

import yaml

from rl.config import Config, load, read

CHANGED = "changed"
"""What is said of a value that its file does not account for, or that the command line has put in its place."""

_TAG = re.compile(r"(paper|inferred|ours)\b")


def provenance(path: Path, config: Config, defaults: Path) -> dict[str, str]:
    """What is known of every value of a configuration.

    A comment stands on the line of its key; a section's holds for what is in it and has none of its own. It begins with
    ``paper``, ``inferred`` or ``ours``, and may say more after a colon.

    Args:
      path: the YAML file that the configuration was read from.
      config: as it was read, with the overrides of a command line or of a comparison.
      defaults: the shipped file of the default values, which accounts for the keys that ``path`` leaves out.

    Returns:
      By dotted key the comment, or ``CHANGED``.

    Raises:
      ConfigError: if a file cannot be read.
    """
    here, before = flat(config.model_dump(mode="json")), flat(load(path).model_dump(mode="json"))
    said, written = comments(path.read_text()), flat(read(path))
    known = {key: said.get(key, CHANGED) for key in written}
    known = comments(defaults.read_text()) | known
    return {key: known.get(key, CHANGED) if value == before[key] else CHANGED for key, value in here.items()}


def comments(text: str) -> dict[str, str]:
    """By dotted key the comment of each value in a YAML text that has one which begins with a tag."""
    root = yaml.compose(text, yaml.SafeLoader)
    return _of_section(root, text.splitlines(), "", "") if isinstance(root, yaml.MappingNode) else {}


def flat(values: dict, prefix: str = "") -> dict:
    """The values of nested sections by dotted key."""
    found = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _of_section(section: yaml.MappingNode, lines: list[str], prefix: str, inherited: str) -> dict[str, str]:
    found = {}
    for key, value in section.value:
        name, is_block = prefix + key.value, getattr(value, "flow_style", None) is False
        said = _tagged(lines, key.end_mark if is_block else value.end_mark) or inherited
        if isinstance(value, yaml.MappingNode):
            found |= _of_section(value, lines, f"{name}.", said)
        elif said:
            found[name] = said
    return found


def _tagged(lines: list[str], mark: yaml.Mark) -> str:
    """The comment on the rest of a line, if it begins with a tag."""
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    _, hash_sign, comment = f" {rest}".partition(" #")
    return comment.strip() if hash_sign and _TAG.match(comment.strip()) else ""
