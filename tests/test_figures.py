"""What pages quote is what docs/figures.yaml has."""

from pathlib import Path

import pytest
from disturb import load_script

ROOT = Path(__file__).parents[1]
figures = load_script("docs/figures.py")

QUOTING = ("README.md", "docs/getting-started.md", "docs/index.md", "docs/study/README.md")


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_figures_of_the_file(page):
    text = page.read_text(encoding="utf-8")
    assert figures.render(text, figures.load()) == text, "python docs/figures.py writes the pages anew"


def test_the_front_pages_quote_figures_by_name():
    for name in QUOTING:
        assert figures.FIGURE.search((ROOT / name).read_text(encoding="utf-8")), name


def test_every_section_says_where_its_figures_are_from():
    for name, section in figures.load().items():
        assert {"commit", "date", "machine"} <= section.keys(), name


def test_a_number_a_difference_a_block_and_a_table_are_written_anew():
    page = (
        "It solves <!--=a.end-->9.9 % (<!--=a.less-->+1 points).\n\n"
        "<!--=a.text-->\n```\nold\nlines\n```\n\n"
        "<!--=a.table-->\n| old |\n|---|\n| x |\n\nEnd 3.\n"
    )
    values = {"a": {"end": "16.6", "less": "+5.8 [+2.9 +8.7]", "text": "new", "table": "| new |\n|---|"}}
    assert figures.render(page, values) == (
        "It solves <!--=a.end-->16.6 % (<!--=a.less-->+5.8 [+2.9 +8.7] points).\n\n<!--=a.text-->\n```\nnew\n```\n\n"
        "<!--=a.table-->\n| new |\n|---|\n\nEnd 3.\n"
    )
    with pytest.raises(KeyError, match=r"docs/figures\.yaml has no a\.begin"):
        figures.render("<!--=a.begin-->1", values)


def test_the_picture_of_the_regimes_has_the_cells_of_the_studys_table():
    page = (
        "| regime | less a | less b |\n|---|---:|---:|\n"
        "| 1. [plans](x.md#y), 3 rounds | -0.3 [-1.1 +0.5] | |\n"
        "| 2. turns | <!--=t.e-->+4.9 [+3.2 +6.7] | +8.1 [+4.8 +11.4] (`rule`) |\n\n"
        "Text.\n\n| another | table |\n|---|---|\n| 3 | +1.0 [+0.0 +2.0] |\n"
    )
    assert figures._read_regimes(page) == (
        ["less a", "less b"],
        [
            ("1. plans, 3 rounds", [(-0.3, -1.1, 0.5), None]),
            ("2. turns", [(4.9, 3.2, 6.7), (8.1, 4.8, 11.4)]),
        ],
    )
