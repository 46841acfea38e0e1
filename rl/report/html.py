"""Parts of a page that stands alone: no network, no library, its pictures inside; knows nothing of runs."""

import base64
import html
import re
from collections.abc import Iterable

from rl.table import Table

LONG = 32
"""Characters from which a cell may break into lines."""
DOUBT = "[?]"
"""Stands out in a table."""


def document(title: str, blocks: Iterable[str]) -> str:
    """Make a whole page, with links to its sections under the title."""
    body = "\n".join(blocks)
    links = "".join(f'<a href="#{name}">{text}</a>' for name, text in re.findall(r'<h2 id="(.*?)">(.*?)</h2>', body))
    nav = f"<nav>{links}</nav>" if links else ""
    return _PAGE.format(title=escape(title), style=_STYLE, nav=nav, body=body)


def section(title: str, blocks: Iterable[str], level: int = 2) -> str:
    """Make a heading with blocks under it; nothing without any."""
    shown = [block for block in blocks if block]
    name = f' id="{escape(title).replace(" ", "-").lower()}"' if level == 2 else ""
    return "\n".join((f"<h{level}{name}>{escape(title)}</h{level}>", *shown)) if shown else ""


def paragraph(text: str) -> str:
    """Make a paragraph of plain text; nothing of none."""
    return f"<p>{escape(text)}</p>" if text else ""


def note(text: str) -> str:
    """Make small print."""
    return f'<p class="note">{escape(text)}</p>'


def table(content: Table, of_words: bool = False) -> str:
    """Make a table in a box that scrolls sideways on a narrow screen; columns of words begin at the left."""
    head = "".join(f"<th>{escape(cell.strip())}</th>" for cell in content.header if any(content.header))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in content.rows)
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    box = f'<div class="wide"><table class="{"words" if of_words else "figures"}">{body}</table></div>'
    return f'<p class="caption">{escape(content.title)}</p>{box}'


def picture(png: bytes, caption: str) -> str:
    """Make a picture over its caption; on a narrow screen it keeps a legible width and scrolls."""
    width = round(0.69 * int.from_bytes(png[16:20]))  # of the file's pixels, so that all lettering has one size
    data = base64.b64encode(png).decode()
    width_style = f'style="width: {width}px; min-width: min({width}px, 38rem)"'
    image = f'<div class="wide"><img {width_style} alt="{escape(caption)}" src="data:image/png;base64,{data}"></div>'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def verbatim(text: str) -> str:
    """Show text as it was written, line by line."""
    return f"<pre>{escape(text)}</pre>"


def bullets(items: Iterable[str]) -> str:
    """Make a list of plain texts; nothing of none."""
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>" if entries else ""


def folded(title: str, blocks: Iterable[str]) -> str:
    """Make a part that opens at a click, and is always in print; nothing without any block."""
    shown = "\n".join(block for block in blocks if block)
    return f"<details><summary>{escape(title)}</summary>\n{shown}\n</details>" if shown else ""


def escape(text: str) -> str:
    """Escape text as the content of an element or an attribute."""
    return html.escape(text, quote=True)


def _cell(text: str) -> str:
    kind = ' class="long"' if len(text) > LONG else ""
    return f"<td{kind}>{escape(text.strip()).replace(DOUBT, f'<mark>{DOUBT}</mark>')}</td>"


_STYLE = """\
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  max-width: 68rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 2.4rem; border-bottom: 1px solid #bbb; }
h3 { font-size: 1.05rem; margin-top: 1.6rem; }
nav a { margin-right: 1rem; white-space: nowrap; } a { color: #0072b2; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: .86rem; font-variant-numeric: tabular-nums; }
.caption { font-weight: 600; font-size: .86rem; margin: 1.2rem 0 .2rem; } .caption + .wide { margin-top: 0; }
th, td { text-align: right; padding: .2rem .45rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
th, td { vertical-align: top; }
th:first-child, td:first-child, td.long, .words th, .words td { text-align: left; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 1px solid #666; }
td.long { white-space: normal; min-width: 14rem; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0; } figure .wide { margin: 0; }
figure img { display: block; max-width: 100%; height: auto; } mark { background: #f0e442; font-weight: 600; }
figcaption, .note { color: #555; font-size: .86rem; }
pre { background: #f4f4f4; padding: .7rem; font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; }
.boards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 1rem; }
@media (max-width: 40rem) { .boards { grid-template-columns: repeat(2, 1fr); } }
.boards figure { margin: 0; } .boards svg { width: 100%; height: auto; border: 1px solid #ddd; }
.still { display: none; }
@media (prefers-reduced-motion: reduce) { .moving { display: none; } .still { display: block; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  .moving { display: none; } .still { display: block; } .wide { overflow: visible; }
  figure, tr, .boards { break-inside: avoid; } h2, h3, .caption, summary { break-after: avoid; }
  figure img { min-width: 0 !important; width: auto !important; max-height: 22cm; }
  table, pre { font-size: 7.5pt; } pre { border: 1px solid #ccc; } th, td { padding: .1rem .3rem; }
  td.long { min-width: 0; } .boards { grid-template-columns: repeat(4, 1fr); }
}"""

# Without the script a folded part that nobody has opened is missing in print, and nothing else is.
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
{nav}
{body}
<script>
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => part.open = true));
</script>
</body>
</html>
"""
