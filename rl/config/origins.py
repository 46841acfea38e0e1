"""Origin of a setting's default: the paper, our reading of it, or us; a part of the setting's type."""

import dataclasses
import functools
import json
from typing import Any

import pydantic_core


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a setting's value, in the `Annotated` of its field; see `paper`, `inferred` and `ours`."""

    tag: str
    value: Any
    remark: str = ""

    def of(self, default: Any) -> str:
        """Return where a default comes from, and the paper's value if it is another."""
        is_paper = self.tag != "ours"
        tag = self.tag if is_paper and default == self.value else "ours"
        remark = f"the paper has {as_override(self.value)}" if is_paper and tag == "ours" else self.remark
        return f"{tag}: {remark}" if remark else tag


paper = functools.partial(Origin, "paper")
"""Marks a setting of which the paper gives the value."""
inferred = functools.partial(Origin, "inferred")
"""Marks a setting whose value follows from what the paper says."""
ours = functools.partial(Origin, "ours", None)
"""Marks a setting of which the paper gives no value, as all are that have no mark."""


def as_override(value: Any) -> str:
    """Return a value of a configuration as an override would give it, such as ``[3,4]`` or ``null``."""
    return json.dumps(pydantic_core.to_jsonable_python(value)).replace('"', "")
