"""Says where in the repository the files of the distribution `jaxlake-rl` lie; an sdist of it holds them in place."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FromRepository(BuildHookInterface):
    """The build hook that finds the files of the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add `rl`, `engineer` and `rl/configs` where this folder is the repository's and they are to be copied."""
        folder = Path(self.root)
        if version == "editable" or not (folder / "__init__.py").exists():
            return
        places = {path: f"rl/{path.name}" for path in folder.iterdir() if _is_packaged(path)}
        places |= {folder.parent / name: f"rl/{name}" for name in ("configs", "LICENSE")}
        places[folder.parent / "engineer"] = "engineer"
        build_data["force_include"] |= {str(path): place for path, place in places.items()}


def _is_packaged(path: Path) -> bool:
    """Whether something in this folder is a part of `rl`: neither of its packaging, nor what a build or a run left."""
    if path.is_dir():
        return any(path.glob("*.py")) or (path / "config.json").exists()  # the shipped model has no code
    return path.name == "py.typed" or (path.suffix == ".py" and path != Path(__file__))
