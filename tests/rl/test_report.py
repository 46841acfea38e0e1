"""The report of a fabricated run says what the run's files say, from the files alone."""

import dataclasses
import html.parser
import json
import re
import shutil
from pathlib import Path

import matplotlib.image
import pytest
from runs import RAW, SIZES, as_file, fabricate_run

from engineer.evidence import CHECKS, Evidence, KindEvidence
from engineer.examples import think
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report import curves, pictures
from rl.report.__main__ import main
from rl.report.page import write
from rl.report.run import read
from rl.report.tables import excerpt, round_table, shares, table_text

PICTURES = {f"{name}.png" for name in ("learning", "training", "allocation", "failures", "samples", "time")}
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


class Page(html.parser.HTMLParser):
    """Text of a page, its references and ids; an element that stays open fails."""

    EMPTY = frozenset({"meta", "img", "br"})

    def __init__(self, path: Path):
        super().__init__()
        self.text, self.refers, self.ids, self.open = "", [], [], []
        self.feed(path.read_text())
        assert not self.open
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.refers += [named[key] for key in ("src", "href") if key in named]
        self.ids += [named["id"]] if "id" in named else []
        self.open += [tag] if tag not in self.EMPTY else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass  # of a drawing

    def handle_data(self, data):
        self.text += data


def test_a_page_its_pictures_and_its_numbers_are_written_and_nothing_else(report):
    assert {path.name for path in report.parent.iterdir()} == {"report.html", "report.json", *PICTURES}
    for name in PICTURES:
        drawn = matplotlib.image.imread(report.parent / name)
        assert min(drawn.shape[:2]) > 300
        assert drawn[..., :3].std() > 0.05


def test_the_page_stands_alone_and_is_small(report):
    page = Page(report)
    assert report.stat().st_size < 3e6
    assert len(page.ids) == len(set(page.ids)) and "boards" in page.ids
    for place in page.refers:
        assert place.startswith("data:image/png;base64,") or place.removeprefix("#") in page.ids
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", report.read_text())


@pytest.mark.heavy
def test_writing_again_gives_the_same_files(run_dir, report):
    before = {path.name: path.read_bytes() for path in report.parent.iterdir()}
    write(run_dir)
    assert {path.name: path.read_bytes() for path in report.parent.iterdir()} == before


def test_summary_has_every_size_and_their_total_for_every_stage(run_dir):
    stages = read(run_dir).stages
    assert [stage.name for stage in stages] == ["before", "warm start", "round 0", "round 1", "round 2"]
    for stage in stages:
        found, counts = shares(stage), {row.kind: row.n for row in stage.evidence.by_kind}
        assert tuple(found) == (*map(Kind.of, SIZES), None) and stage.evidence.n == sum(counts.values()) == 256
        total = found[None]["valid"]
        assert total.value * 256 == pytest.approx(sum(found[kind]["valid"].value * n for kind, n in counts.items()))
        assert total.low < total.value or total.value == 0
        assert found[None]["optimal"].value <= total.value
        sampled = found[None]["sampled"]
        assert sampled.low is None or sampled.low < sampled.value < sampled.high


def test_the_numbers_beside_the_page_are_those_of_the_files(run_dir, report):
    numbers = json.loads((report.parent / "report.json").read_text())
    for name, folder in (("before", "before"), ("round 2", "rounds/2")):
        rows = json.loads((run_dir / folder / "evidence.json").read_text())["by_size"]
        written = numbers["validations"][name]
        assert written["boards"] == sum(row["n"] for row in rows)
        for row in rows:
            assert written["by_kind"][str(row["size"])]["valid"]["value"] == row["valid"] / row["n"]
            assert written["by_kind"][str(row["size"])]["sampled"]["value"] == row["sampled_valid"]
        for check in CHECKS:
            assert written["any_failures"][check] == sum(row["any_failures"][check] for row in rows)
    assert numbers["rounds"]["round 1"]["requested"] == json.loads((run_dir / "rounds/1/config.json").read_text())
    timings = [json.loads(line) for line in (run_dir / "timings.jsonl").read_text().splitlines()]
    rollout = sum(row["rollout"] for row in timings if row["phase"] == "round")
    assert numbers["time"]["rollout"]["seconds"] == pytest.approx(rollout)


def test_terminal_tables_hold_the_evidence(run_dir):
    printed = table_text(run_dir)
    evidence = Evidence.from_json(json.loads((run_dir / "rounds" / "2" / "evidence.json").read_text()))
    greedy, sampled = (line for line in printed.splitlines() if line.startswith("all"))
    assert f"{100 * evidence.valid / evidence.n:.0f} [" in greedy.split("]")[-2]
    assert f"{100 * evidence.sampled_valid:.0f} [" in sampled.split("]")[-2]
    assert "0.340 / 0.200 / 0.400" in printed.split("Configurations as requested")[1]


def test_many_rounds_still_fit_the_terminal(copy):
    for k in range(3, 12):
        shutil.copytree(copy / "rounds" / "2", copy / "rounds" / str(k))
    printed = table_text(copy)
    assert max(map(len, printed.splitlines())) <= 80
    headers = [line for line in printed.split("\n\n")[0].splitlines() if line.startswith("size")]
    assert " ".join(headers).count("round") == 12
    names = {"allocation.png", "failures.png"}
    assert set(pictures.draw_all(read(copy), names)) == names


def test_the_engineers_words_stand_verbatim_with_their_repairs(report):
    page = Page(report)
    assert " ".join(RAW.split()) in page.text
    assert "<b>holes</b>" not in report.read_text()
    assert "size 4 is missing: kept from the previous round" in page.text
    assert "Design round 2." in page.text
    assert "Round 0: random" in page.text


FALLBACK = {"raw": "", "fallback": True, "repairs": [], "errors": ["it holds no object", "too long"]}
GATE = {"verdict": "refused", "action": "mixed", "without_signal": 0.95, "bound": 0.9}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            FALLBACK,
            "Attempt 2 held no configuration: too long The previous round's configuration stayed in force.",
        ),
        ({"gate": GATE}, "Gate: refused and mixed; 95 % of the piloted boards had answers that were all valid"),
        ({"gate": GATE | {"verdict": "passed", "without_signal": None}}, "Gate: passed."),
        ({"candidates": [{}, {}, {}], "chosen": 1}, "Chosen: answer 2 of 3."),
    ],
)
def test_what_became_of_a_proposal_is_reported(tmp_path, monkeypatch, change, words):
    monkeypatch.setattr(pictures, "PICTURES", {})
    directory = fabricate_run(tmp_path / "run")
    path = directory / "rounds" / "1" / "proposal.json"
    as_file(path, {**json.loads(path.read_text()), **change})
    assert words in Page(write(directory)).text


def without_samples(directory: Path) -> None:
    """Leaves what the first versions wrote: no samples, no clock, no configuration of the run."""
    for name in ("timings.jsonl", "config.yaml", "provenance.json"):
        (directory / name).unlink()
    for path in directory.rglob("evidence.json"):
        evidence = Evidence.from_json(json.loads(path.read_text()))
        unsampled = {"groups": 0, "learnable": 0, "all_valid": 0, "all_invalid": 0}
        unsampled |= {"sampled_valid": None, "sampled_se": None}
        rows = tuple(dataclasses.replace(row, **unsampled) for row in evidence.by_kind)
        bare = dataclasses.replace(evidence, by_kind=rows, sampled_valid=None, sampled_se=None, samples_per_prompt=0)
        as_file(path, dataclasses.replace(bare, training=None).to_json())
    for path in (directory / "rounds").glob("*/proposal.json"):
        as_file(path, {"engineer": json.loads(path.read_text())["engineer"]})


def keep_rows_of(directory: Path, phase: str) -> None:
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows if row["phase"] == phase))


def warm_start_alone(directory: Path) -> None:
    shutil.rmtree(directory / "rounds")
    keep_rows_of(directory, "warm_start")


def rounds_alone(directory: Path) -> None:
    shutil.rmtree(directory / "warm_start")
    keep_rows_of(directory, "round")


def nulls(directory: Path) -> None:
    """Leaves metrics that were logged, but are null."""
    for name in ("metrics.jsonl", "timings.jsonl"):
        rows = [json.loads(line) for line in (directory / name).read_text().splitlines()]
        places = ("phase", "round", "step")
        rows = [{key: value if key in places else None for key, value in row.items()} for row in rows]
        as_file(directory / name, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("change", "words", "left_out"),
    [
        (without_samples, "From warm start to round 2, valid plans on validation went from 4", {"training", "time"}),
        (warm_start_alone, "From before to warm start, valid plans on validation went from 0 % to ", {"allocation"}),
        (rounds_alone, "From before to round 2, valid plans on validation went from 0 % to ", set()),
        (nulls, "From warm start to round 2, valid plans", {"training", "time"}),
    ],
)
def test_a_run_is_reported_with_what_it_has(tmp_path, change, words, left_out):
    directory = fabricate_run(tmp_path / "run", full=change is nulls)
    change(directory)
    page = write(directory)
    assert words in Page(page).text
    drawn = {path.stem for path in page.parent.glob("*.png")}
    assert "learning" in drawn and not left_out & drawn
    assert ("Time and memory" in Page(page).text) == ("time" in drawn)


def test_time_is_summed_by_part_with_its_share(run_dir, report):
    rows = [json.loads(line) for line in (run_dir / "timings.jsonl").read_text().splitlines()]
    parts = ("rollout", "update", "host")
    seconds = {part: sum(row[part] for row in rows if row["phase"] == "round") for part in parts}
    share = 100 * seconds["host"] / sum(seconds.values())
    assert f"<tr><td>host</td><td>{seconds['host']:.1f}</td><td>{share:.1f}</td>" in report.read_text()


def test_every_setting_stands_with_its_origin(report):
    page = report.read_text()
    assert "<tr><td>seed</td><td>7</td><td>ours</td></tr>" in page
    assert "<tr><td>rounds.count</td><td>3</td><td>changed</td></tr>" in page
    assert "<tr><td>engineer.context</td><td>V6</td><td>unknown</td></tr>" in page


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
    as_file(tmp_path / "rounds" / "1" / "proposal.json", {"thinking": "More of size 4.", "realised": before.to_dict()})
    first, second = (round_table(read(tmp_path), past) for past in read(tmp_path).rounds)
    assert first.header == ("size", "data", "hole", "wait")  # no evidence, no words, nothing realised
    assert first.rows == [("3", "0.5", "0.3", "0.9"), ("4", "0.5", "0.3", "0.9")]
    assert second.header[:4] == ("size", "valid %", "hole %", "conflict %")  # nothing was sampled
    made, said = "0.500 / 0.300 / 0.900", "More of size 4."
    unsaid = f"(size not named) {said}"
    assert second.rows == [
        ("3", "50 [40-60]", "40 [31-50]", "0 [0-4]", "0.5 → 0.25", "0.3", "0.9 → 0.4", made, unsaid),
        ("4", "20 [13-29]", "0 [0-4]", "80 [71-87]", "0.5 → 0.75", "0.3 → 0.315", "0.9", made, said),
    ]


def test_the_sentence_that_names_the_size_stands_beside_it():
    thinking = "Hard so far. Weakest size 6 (19% valid), most learnable size 5. Sizes 3 and 4 are solved; fewer 10x10."
    four, five, six, seven, ten = map(Kind.of, (4, 5, 6, 7, 10))
    assert excerpt(thinking, five) == excerpt(thinking, six) == "Weakest size 6 (19% valid), most learnable size 5."
    assert excerpt(thinking, four).startswith("Sizes 3 and 4")
    assert excerpt(thinking, ten).startswith("Sizes 3 and 4")
    assert excerpt(thinking, seven) == "(size not named) Hard so far."
    assert excerpt("", seven) == "-"
    assert len(excerpt("size 7 " * 100, seven)) == 160


def test_the_terse_thoughts_of_the_warm_start_name_sizes_without_the_word():
    none = dict.fromkeys((4, 5, 6, 10), 0)
    thinking = think(evidence_of({4: 76, 5: 40, 6: 7, 10: 3}, none, none), [*map(Kind.of, none)])
    assert thinking.startswith("Weakest:10 3;6 7;5 40;4 76;most learnable:")
    assert {excerpt(thinking, Kind.of(size)) for size in none} == {thinking}
    for size in (3, 7, 8):
        assert excerpt(thinking, Kind.of(size)) == f"(size not named) {thinking}"


def test_the_sentence_that_names_the_kind_stands_beside_it():
    thinking = "Hard so far. Fewer 6x3. Weakest kind rooms6 (19% valid). Rooms5x3 is solved, corridor8x3 not."
    assert excerpt(thinking, Kind.of("6x3")) == "Fewer 6x3."
    assert excerpt(thinking, Kind.of("rooms6")) == "Weakest kind rooms6 (19% valid)."
    assert excerpt(thinking, Kind.of("rooms5x3")) == "Rooms5x3 is solved, corridor8x3 not."
    for name in ("rooms5", "corridor8", "maze6"):
        assert excerpt(thinking, Kind.of(name)) == "(kind not named) Hard so far."


def test_tables_have_a_row_for_each_kind_and_none_of_them_for_what_was_not_asked(kinds_dir):
    greedy, sampled, requested = table_text(kinds_dir).split("\n\n")
    for table, kinds in ((greedy, (*TARGETS, "all")), (requested, DESIGNED)):
        block = table.splitlines()[1:]  # without the title
        assert {line.split()[0] for line in block} == {"kind", *map(str, kinds)}
    last = round_table(read(kinds_dir), read(kinds_dir).rounds[-1])
    assert {row[0] for row in last.rows} == {*map(str, (*DESIGNED, *TARGETS))}


@pytest.mark.parametrize(("name", "kinds"), [("allocation.png", DESIGNED), ("failures.png", TARGETS)])
def test_kinds_stand_on_the_axes_of_pictures(kinds_dir, name, kinds):
    figure = pictures.PICTURES[name][0](read(kinds_dir))
    figure.draw_without_rendering()
    ticks = {label.get_text() for one in figure.axes for label in (*one.get_xticklabels(), *one.get_yticklabels())}
    assert ticks & {*map(str, (*DESIGNED, *TARGETS))} - {"3"} == {*map(str, kinds)} - {"3"}  # 3 may be a number
    assert "kind of boards" in (figure.get_supxlabel(), figure.get_supylabel())


def test_what_was_trained_on_has_a_curve_for_each_kind(kinds_dir):
    figure = curves.training(read(kinds_dir))
    (axes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "valid answers by kind of boards, %"]
    assert [line.get_label() for line in axes.get_lines() if not line.get_label().startswith("_")] == [
        *("size 3", "kind 4x3", "kind rooms5", "kind corridor5x3")
    ]


def test_several_runs_stand_side_by_side(run_dir, tmp_path, capsys):
    other, file = fabricate_run(tmp_path / "other"), tmp_path / "both" / "page.html"
    assert main([str(run_dir), str(other), "-o", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    written = {str(path.relative_to(file.parent)) for path in file.parent.rglob("*.*")}
    assert written == {"page.html", "page.json", "tiny/allocation.png", "other/allocation.png"}
    assert json.loads(file.with_suffix(".json").read_text()).keys() == {"tiny", "other"}
    assert "Last validation of each run" in Page(file).text
    with pytest.raises(SystemExit):
        main([str(run_dir), str(run_dir), "-o", str(tmp_path / "twice.html")])
    assert "two of the runs are called tiny: give each a page of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rounds/1/evidence.json", '{"version": 1}', "evidence of version 2, which this program reads"),
        ("rounds/1/evidence.json", "{", "evidence.json: Expecting"),
        ("rounds/1/config.json", '{"3": {}}', "config.json: entry of size 3"),
        ("rounds/1/proposal.json", "", "proposal.json: Expecting value"),
        ("rounds/1/proposal.json", "[]", "proposal.json: holds []: it must be an object"),
        ("metrics.jsonl", "{}\nnot json\n", "metrics.jsonl: Expecting value"),
        ("metrics.jsonl", "3\n", "metrics.jsonl: holds 3: it must be an object"),
        ("config.yaml", "a: [", "config.yaml: while parsing"),
        ("config.yaml", "- a", "config.yaml: holds ['a']: it must be an object"),
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


def test_a_folder_without_a_run_is_named_in_one_line(tmp_path, capsys):
    for folder, fault in (
        (tmp_path, "holds no validation to report on"),
        (tmp_path / "none", "there is no such directory"),
    ):
        with pytest.raises(SystemExit):
            main([str(folder)])
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"python -m rl.report: error: {folder}: {fault}")


def test_a_row_that_is_still_being_written_is_left_out(run_dir, copy):
    whole = (copy / "metrics.jsonl").read_text()
    as_file(copy / "metrics.jsonl", f'{whole}{{"phase": "round", "ro')
    assert read(copy).steps == read(run_dir).steps
