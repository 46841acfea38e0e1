"""The report of a fabricated run says what the run's files say, from the files alone."""

import html
import json
import re
import shutil
from pathlib import Path

import matplotlib.image
import pytest
from runs import RAW, SAMPLES, as_file, fabricate_run

from engineer.evidence import CHECKS, Evidence, KindEvidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report.__main__ import main
from rl.report.page import write
from rl.report.run import read
from rl.report.samples import lost_parts
from rl.report.tables import round_table, table_text, validation_tables

PICTURES = {f"{name}.png" for name in ("learning", "kinds", "training", "allocation", "failures", "samples")}
DESIGNED, TARGETS = (3, "4x3", "rooms5", "corridor5x3"), ("rooms5", "maze6", "corridor5x3", "corridor8")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricate_run(tmp_path_factory.mktemp("runs") / "tiny", full=True)


@pytest.fixture(scope="module")
def report(run_dir: Path) -> Path:
    return write(run_dir)


@pytest.fixture(scope="module")
def kinds_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that designs some kinds of boards and is validated on others."""
    return fabricate_run(tmp_path_factory.mktemp("kinds") / "run", True, DESIGNED, TARGETS)


@pytest.fixture
def copy(run_dir: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return shutil.copytree(run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("report"))


def words_of(page: Path) -> str:
    """The text of a page, in which every element is closed."""
    source = re.sub("<(style|script)>.*?</\\1>", "", page.read_text(), flags=re.DOTALL)
    for name in ("div", "figure", "table", "details", "p", "svg"):
        assert len(re.findall(f"<{name}[ >]", source)) == source.count(f"</{name}>"), name
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", source)).split())


def test_a_page_and_its_pictures_are_written_and_nothing_else(report):
    assert {path.name for path in report.parent.iterdir()} == {"report.html", *PICTURES}
    for name in PICTURES:
        drawn = matplotlib.image.imread(report.parent / name)
        assert min(drawn.shape[:2]) > 300
        assert drawn[..., :3].std() > 0.05


def test_the_tables_say_what_the_files_say(run_dir):
    tables = validation_tables(read(run_dir))
    rows = json.loads((run_dir / "rounds/2/evidence.json").read_text())["by_kind"]
    for name in ("valid", "optimal"):
        assert tables[name].header == ("size", "before", "warm start", "round 0", "round 1", "round 2")
        shown = {line[0]: line[-1].split(" [")[0] for line in tables[name].rows}
        wanted = {str(row["size"]): f"{100 * row[name] / row['n']:.0f}" for row in rows}
        assert shown == wanted | {"all": f"{100 * sum(row[name] for row in rows) / 256:.0f}"}
    sampled = {line[0]: line[-1] for line in tables["sampled"].rows}
    assert [sampled[str(row["size"])] for row in rows] == [f"{100 * row['sampled_valid']:.0f}" for row in rows]
    assert re.fullmatch(r"\d+ \[\d+-\d+\]", sampled["all"])


def test_the_engineers_words_stand_verbatim_with_their_repairs(report):
    text = words_of(report)
    assert " ".join(RAW.split()) in text
    assert "<b>holes</b>" not in report.read_text()
    assert "size 4 is missing: kept from the previous round" in text
    assert "Design round 2." in text
    assert "Round 0: random" in text


def test_what_became_of_a_proposal_is_reported(copy, monkeypatch):
    monkeypatch.setattr("rl.report.page.PICTURES", {})
    path = copy / "rounds/1/proposal.json"
    changes = {"raw": "", "fallback": True, "errors": ["it holds no object", "too long"]}
    changes |= {"candidates": [{}, {}, {}], "chosen": 1}
    as_file(path, json.loads(path.read_text()) | changes)
    text = words_of(write(copy))
    assert "Attempt 2 held no configuration: too long" in text and "answer 2 of 3." in text


def test_a_run_that_has_only_begun_is_reported(copy):
    shutil.rmtree(copy / "rounds")
    rows = [line for line in (copy / "metrics.jsonl").read_text().splitlines() if '"warm_start"' in line]
    as_file(copy / "metrics.jsonl", "".join(row + "\n" for row in rows))
    page = write(copy)
    assert "From before to warm start, valid plans on validation went from 0 % to " in words_of(page)
    assert {path.stem for path in page.parent.glob("*.png")} == {"learning", "kinds", "failures", "samples"}


def evidence_of(valid: dict[int, int], holes: dict[int, int], conflicts: dict[int, int], n: int = 100) -> Evidence:
    rows = []
    for size in valid:
        failures = dict.fromkeys(CHECKS, 0) | {"hole_free": holes[size], "conflict_free": conflicts[size]}
        failures["goal_reached"] = n - valid[size] - holes[size] - conflicts[size]
        rows.append(KindEvidence(Kind.of(size), n, valid[size], 0, failures, failures))
    return Evidence(tuple(rows), None, None, 0, 20.0, 0.0)


def test_a_round_has_the_evidence_before_it_beside_its_changes(tmp_path):
    evidence = evidence_of(valid={3: 50, 4: 20}, holes={3: 40, 4: 0}, conflicts={3: 0, 4: 80})
    before = LakeConfig((3, 4), (0.5, 0.5), hole=(0.3, 0.3), wait=(0.9, 0.9))
    after = LakeConfig((3, 4), (0.25, 0.75), hole=(0.3, 0.315), wait=(0.4, 0.9))
    for k, config in enumerate((before, after)):
        as_file(tmp_path / "rounds" / str(k) / "config.json", config.to_dict())
        as_file(tmp_path / "rounds" / str(k) / "evidence.json", evidence.to_json())
    as_file(tmp_path / "rounds" / "1" / "proposal.json", {"realised": before.to_dict()})
    first, second = (round_table(read(tmp_path), past) for past in read(tmp_path).rounds)
    assert first.header == ("size", "data", "hole", "wait")  # no evidence, nothing realised
    assert first.rows == [("3", "0.5", "0.3", "0.9"), ("4", "0.5", "0.3", "0.9")]
    assert second.header[-3:] == ("valid %", "hole %", "conflict %")  # nothing was sampled
    made = "0.5 / 0.3 / 0.9"
    assert second.rows == [
        ("3", "0.5 → 0.25", "0.3", "0.9 → 0.4", made, "50 [40-60]", "40 [31-50]", "0 [0-4]"),
        ("4", "0.5 → 0.75", "0.3 → 0.315", "0.9", made, "20 [13-29]", "0 [0-4]", "80 [71-87]"),
    ]


def test_tables_have_a_row_for_each_kind_and_none_of_them_for_what_was_not_asked(kinds_dir):
    sampled, requested = table_text(read(kinds_dir)).split("\n\n")
    assert sampled.startswith("Valid % of sampled answers")
    for table, kinds in ((sampled, (*TARGETS, "all")), (requested, read(kinds_dir).designed)):
        block = table.splitlines()[table.count("prompts]") + 1 :]  # without the title, which may take two lines
        assert {line.split()[0] for line in block} == {"kind", *map(str, kinds)}
    last = round_table(read(kinds_dir), read(kinds_dir).rounds[-1])
    *_, before, after = read(kinds_dir).rounds
    with_boards = [kind for kind in DESIGNED if Kind.of(kind) in {**before.requested, **after.requested}]
    assert [row[0] for row in last.rows] == [*map(str, with_boards)]


def test_several_runs_stand_side_by_side(run_dir, tmp_path, capsys):
    other, file = fabricate_run(tmp_path / "other"), tmp_path / "both" / "page.html"
    assert main([str(run_dir), str(other), "-o", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert [path.name for path in file.parent.iterdir()] == ["page.html"]
    text = words_of(file)
    assert "Last validation of each run" in text and f"{run_dir} checkpoint 7 round 2" in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rounds/1/evidence.json", '{"version": 1}', "evidence of version 1: this program reads"),
        ("metrics.jsonl", "{}\nnot json\n", "metrics.jsonl: Expecting value"),
    ],
)
def test_a_broken_file_is_named_in_one_line(copy, capsys, name, content, words):
    as_file(copy / name, content)
    with pytest.raises(SystemExit) as stop:
        main([str(copy)])
    [line] = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert words in line and line.count(name) == 1
    assert not (copy / "report").exists()


def test_a_row_that_is_still_being_written_is_left_out(run_dir, copy):
    whole = (copy / "metrics.jsonl").read_text()
    as_file(copy / "metrics.jsonl", f'{whole}{{"phase": "round", "ro')
    assert read(copy).steps == read(run_dir).steps


@pytest.mark.parametrize(
    ("lost_at", "shown"),
    [
        (11, "0:(0,0)»(1,0)«\n1:(2,2)"),
        (12, "0:(0,0)(1,0)»↵«\n1:(2,2)"),  # the path ends too early
        (20, "0:(0,0)(1,0)\n1:(2,2)»«"),  # the answer does
    ],
)
def test_a_failed_answer_shows_what_loses_the_last_valid_plan(lost_at, shown):
    sample = SAMPLES[0] | {"answer": "0:(0,0)(1,0)\n1:(2,2)", "lost_at": lost_at, "optimal": False}
    before, lost, after = lost_parts(sample | {"checks": {**dict.fromkeys(CHECKS, True), "hole_free": False}})
    assert f"{before}»{lost}«{after}" == shown
    assert lost_parts(sample) is None  # a valid one has lost nothing
