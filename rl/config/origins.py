"""Origin of a setting's value: the paper, our reading of it, or us; a part of the setting's type."""

import dataclasses
import functools
import json
from typing import Any, Literal

import pydantic_core


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a setting's value, in the `Annotated` of its field; see `paper`, `inferred` and `ours`."""

    tag: Literal["paper", "inferred", "ours"]
    value: Any
    remark: str = ""

    def of(self, value: Any, default: Any) -> str:
        """Return where a value comes from: the tag of this origin if it is the value, else ``ours`` or ``changed``."""
        if self.tag != "ours" and value == self.value:
            tag, remark = str(self.tag), self.remark
        else:
            tag = "ours" if value == default else "changed"
            known = {"paper": "the paper has", "inferred": "inferred from the paper is"}.get(self.tag)
            remark = f"{known} {as_override(self.value)}" if known else self.remark
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
