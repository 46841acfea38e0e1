"""Builds the documentation as a site: ``python -m sphinx -W -n --keep-going -b html docs docs/_build``.

The pages are plain Markdown that GitHub shows as well; what a site needs beyond it is here. Uses no network, and needs
the group ``docs``, as the reference is read from the imported modules.
"""

import enum
import importlib
import inspect
import os
import re
import shutil
import sys
import tomllib
import typing
from pathlib import Path

from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # rl and engineer are not installed, and Read the Docs builds in docs/

import jaxlake  # noqa: E402
from rl import config  # noqa: E402

REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]

project = "jaxlake"
version = release = jaxlake.__version__
extensions = ["sphinx.ext.autodoc", "myst_nb"]
exclude_patterns = ["_build", "_linkcheck", "**.ipynb_checkpoints"]
default_role = "code"  # `x` in a docstring
highlight_language = "none"
nitpick_ignore_regex = [
    # Of other projects, whose addresses only the network knows.
    ("py:.*", r"(annotated_types|argparse|chex|collections|flax|gymnasium|gymnax|jax|jaxlib|jumanji|llguidance)\..*"),
    ("py:.*", r"(matplotlib|nnx|np|numpy|optax|os|pathlib|pettingzoo|pydantic|types)\..*"),
    # Ours, in signatures, and nothing that a user makes or calls.
    ("py:class", r"jaxlake\.adapters\.host\.Episode"),
    ("py:class", r"rl\.(learn\.grpo_step|model\.sampler\.draw|run\.state|run\.tracking|students\.writer)\.\w+"),
    ("py:class", r"rl\.report\.run\.(Round|Run|Stage)"),
    (
        "py:class",
        r"rl\.(config\.(types\.Section|loading\.SomeSection|students\.(\w+Fields|PlaySection))|model\.policy\.StudentT)",
    ),
    (
        "py:class",
        r"rl\.(students\.writer\.student\.PlanWriter|lab\.(runs\.RunPlan|held_out\.(AnswerColumns|BoardColumns)))",
    ),
    ("py:class", r"ArrayTree"),  # of chex, inside a union that its signature spells out
    ("py:class", r"rl\.report\.comparison\.findings\.\w+"),
]

html_theme = "furo"
html_title = f"jaxlake {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {"code-font-size": "75%"},
    "dark_css_variables": {"code-font-size": "75%"},
}
html_copy_source = False
html_show_copyright = html_show_sphinx = False
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]  # as GitHub and notebooks have it

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

NAPOLEON = Config(
    napoleon_use_param=False, napoleon_use_rtype=False, napoleon_custom_sections=[("Attributes", "params_style")]
)

# Sphinx reads only what lies in this folder.
COPIED = [*ROOT.glob("notebooks/*.ipynb"), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
shutil.rmtree(DOCS / "notebooks", ignore_errors=True)
(DOCS / "notebooks").mkdir()
for _path in COPIED:
    shutil.copyfile(_path, DOCS / _path.relative_to(ROOT))

TREE = r"~jax\.Array \| ~numpy\.ndarray \| ~numpy\.bool \| ~numpy\.number \| bool \| int \| float \| complex"
WRITTEN = {  # of a signature as autodoc has it, and as the code has it
    r"jax\.jaxlib\._jax\.Array": "jax.Array",
    rf"{TREE} \| ~typing\.Iterable\[ArrayTree\] \| ~typing\.Mapping\[~typing\.Any, ArrayTree\]": "optax.OptState",
    TREE: "chex.Numeric",
    r"~jaxtyping\.\w+\[~?[\w.]*Array, '[.]*'\]": "~jax.Array",
    r"<function (\w+)>": r"\1",
    r"<factory>|<function [\w.]+\.<lambda>>": "...",
    r"^\(\*args\b.*\*\*kwargs\b.*\)$": "",  # of a metaclass
    r"<class 'jax\.numpy\.(\w+)'>": r"jnp.\1",
}
KINDS = {"null": "`null`", "boolean": "`true`, `false`", "integer": "int", "number": "float", "string": "text"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(#[^)\s]*)?(?=\))")


def link_to_site_or_repository(app, docname, source):
    """Lead a relative link, which works on GitHub, there if its file is no page of the site."""
    page = Path(app.env.doc2path(docname))
    if ROOT / page.relative_to(DOCS) in COPIED:
        page = ROOT / page.relative_to(DOCS)

    def address(match):
        target, anchor = Path(os.path.normpath(page.parent / match[1])), match[2] or ""
        if not target.exists() or target.suffix == ".png":
            return match[0]
        if target in COPIED:
            target = DOCS / target.relative_to(ROOT)
        if target.is_relative_to(DOCS) and app.env.path2doc(str(target)) in app.env.found_docs:
            return os.path.relpath(target, Path(app.env.doc2path(docname)).parent) + anchor
        return f"{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{target.relative_to(ROOT)}{anchor}"

    source[0] = LINK.sub(address, source[0])


def read_docstring(app, what, name, obj, options, lines):
    """Google style to reStructuredText. Also an attribute's as a function's: Napoleon would look for a type in it."""
    lines[:] = GoogleDocstring(lines, NAPOLEON, what="function").lines()


def read_signature(app, what, name, obj, options, signature, returns):
    """Types by the names they have in the code; an enumeration shows its members instead, a configuration its page."""
    if isinstance(obj, enum.EnumType) or hasattr(obj, "model_fields"):
        return "", None
    for pattern, name in WRITTEN.items():
        signature, returns = (re.sub(pattern, name, text) if text else text for text in (signature, returns))
    return signature, returns


def skip_member(app, what, name, obj, skip, options):
    """Members of enumerations and lists of words are shown; what chex and the bases bring to a dataclass is not."""
    if (isinstance(obj, enum.Enum) and obj.name == name) or typing.get_origin(obj) is typing.Literal:
        return False
    if name == "model_config":
        return True
    home = getattr(obj, "__module__", None)
    return True if home and home.partition(".")[0] not in ("jaxlake", "engineer", "rl") else None


class Settings(SphinxDirective):
    """The keys of a configuration, a table for each section: ``{settings} rl.config.Config``."""

    required_arguments = 1

    def run(self):
        module, _, name = self.arguments[0].rpartition(".")
        return self.parse_text_to_nodes("\n\n".join(settings(getattr(importlib.import_module(module), name))))


def settings(outermost):
    """Markdown: of every section what it is for, and a table of its keys."""
    parts, seen = [], set()
    for name, section in config.sections(outermost):
        schemas, prefix = section.model_json_schema()["properties"], f"{name}." if name else ""
        rows = [
            "| " + " | ".join([f"`{prefix}{key}`", *cells(field, schemas[key])]) + " |"
            for key, field in config.settings(section).items()
        ]
        again = ":no-index:\n" * (section in seen)  # several students have it
        target = (
            f"```{{py:class}} {section.__module__}.{section.__name__}\n:no-typesetting:\n{again}```"  # where types lead
        )
        seen.add(section)
        parts += [f"### {name}", target, inspect.getdoc(section)] if name else []
        parts.append("\n".join(["| key | default | must be | | from |", "|---|---|---|---|---|", *rows]))
    return parts


def cells(field, schema):
    """Markdown of a setting: its default, what it must be, its meaning, and where the default comes from."""
    default, origin = "must be given", ""
    if not field.is_required():
        default, origin = f"`{config.as_override(field.default)}`", config.origin(field)
    return default, allowed(field, schema), field.description or "", origin


def allowed(field, schema):
    """Return what a value must be, in Markdown: ``int ≥ 3, ≤ 10``, or its words."""
    words = ", ".join(f"`{word}`" for word in config.words(field.annotation))
    return f"{'list of ' * (schema.get('type') == 'array')}{words}" if words else bounded(schema)


def bounded(schema):
    """Return what a JSON schema says of a value."""
    if "anyOf" in schema:
        return " or ".join(map(bounded, schema["anyOf"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {bounded(schema['items'])}"
    bounds = ", ".join(f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema)
    return f"{KINDS.get(kind, kind)} {bounds}".rstrip()


def setup(app):
    app.connect("source-read", link_to_site_or_repository)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", read_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.add_directive("settings", Settings)
