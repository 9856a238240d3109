"""The report: foreign text stays text, and nothing that went wrong is left out."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from engine.figures import catalogue
from engine.report import formats, gate_matrix, render
from engine.report.comparison import Chain
from engine.report.evidence import Exhibit
from engine.report.formats import breakable
from tests.synthetic_mechanism import mechanism_design, mechanism_study, modes
from tests.synthetic_report import REPOSITORY, Tables, study_tables, write_report
from tests.synthetic_rows import FAMILIES, failed_cell, small_design

PLANTED = '<script>alert("planted")</script>'
ERROR = f"\x1b[31mRuntimeError: {PLANTED} 'quoted' & \U0001f4a5 内存不足\x1b[0m\x00"
NAMES = ["news", "新聞 报道", PLANTED, "rocket 🚀", """both "quotes" & 'these'"""]
VOID = {"meta", "img", "source", "br", "wbr"}


class Page(HTMLParser):
    """The text, tags and attributes of a page, and whether its elements close in order."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.faults: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


@functools.cache
def hostile() -> Tables:
    """A study whose families, errors, models, overrides and judgements hold hostile text."""
    design = small_design(
        families=NAMES,
        contexts=[256, 512],
        prompts={"source": "jsonl", "path": "own.jsonl"},
        title=f"Title {PLANTED}",
    )
    slugs = list(design.family_slugs)

    def alter(row):
        row = {**row, "target_model": f"org/{PLANTED}", "device_name": f"GPU {PLANTED} 显卡"}
        cell = row["context"], row["family"], row["mode"], row["replicate"]
        return failed_cell(row, "out_of_memory", ERROR) if cell == lost else row

    lost = ("512", slugs[1], "spec", 1)
    tables = study_tables(
        design,
        failed={("256", slugs[2], "spec"): "steady", ("512", slugs[0], "ar"): "closed"},
        outcomes={("256", slugs[3], "spec"): "near_tie", ("512", slugs[4], "spec"): "failed"},
        overrides=(f"title={PLANTED}", "seed=7"),
        frozen={
            "frozen_at": "2026-01-05T08:00:00+00:00",
            "changes": [{"at": "2026-01-06", "keys": ["gates.drift", PLANTED]}],
        },
        alter=alter,
    )
    gates = tables.gates.copy()
    failing = gates.index[~gates["passed"]]
    gates.loc[failing, "text"] = [f"finding {n} {PLANTED}" for n in range(len(failing))]
    gates.loc[failing, "figure"] = [0.123, 0.456]
    return dataclasses.replace(tables, gates=gates)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(write_report(hostile(), tmp_path_factory.mktemp("report")))


def test_the_page_is_well_formed(page):
    assert not page.faults
    assert page.open == []
    assert page.source.startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in page.attributes


def test_foreign_text_is_text(page):
    assert "script" not in page.tags
    assert PLANTED not in page.source
    for name in NAMES:
        assert name in page.text
    for written in (
        f"org/{PLANTED}", f"GPU {PLANTED} 显卡", f"title={PLANTED}", f"Title {PLANTED}",
        f"RuntimeError: {PLANTED} 'quoted' & \U0001f4a5 内存不足",
    ):  # fmt: skip
        assert written in page.text
    assert not [name for _, a in page.attributes for name in a if name.startswith("on")]


def test_control_characters_are_left_out(page):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page.source)
    assert "[31m" not in page.source


def test_nothing_is_loaded_from_elsewhere(page):
    links = [a[name] for _, a in page.attributes for name in ("src", "srcset", "href") if name in a]
    assert links
    assert all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    targets = {a["id"] for _, a in page.attributes if "id" in a}
    assert {link[1:] for link in links if link.startswith("#")} <= targets
    assert "@import" not in page.source
    assert "url(" not in page.source


def test_every_failing_clause_is_named(page):
    failing = gate_matrix.failing(hostile().gates)
    assert len(failing) == 2
    for clause in failing:
        assert clause["text"] in page.text
        assert formats.short(clause["figure"]) in page.text
        assert clause["clause"] in page.text


def test_every_clause_can_be_unfolded(page):
    rows = len(hostile().gates)
    folded = page.source[page.source.index("Every clause of every gate") :]
    folded = folded[: folded.index('<section aria-labelledby="tokens"')]
    assert folded.count("<tbody>") == 4
    assert folded.count('<th scope="row"') == rows


def test_failed_cells_are_named_with_their_error(page):
    assert "512 tokens, 新聞 报道, spec, r1" in page.text
    assert "spec: out of memory, 1 cell" in page.text


def test_families_out_are_named_with_their_reason(page):
    missing = page.source[page.source.index('id="missing"') :]
    for entry in hostile().verdict["verdicts"]:
        for out in entry["families_out"]:
            assert formats.plain(out["reason"].splitlines()[0])[:12] in missing
    assert "Families out of the inference (2)" in page.text


def test_overrides_and_changes_are_shown(page):
    assert "seed=7" in page.text
    assert "gates.drift" in page.text
    assert "2026-01-05T08:00:00+00:00" in page.text


@pytest.mark.parametrize(("day", "late"), [("2026-01-01", False), ("2026-03-01", True)])
def test_a_design_that_was_frozen_after_the_first_cell_is_told(tmp_path, day, late):
    """Who deletes the record and runs again gets another: not what was frozen."""
    tables = study_tables(
        small_design(contexts=[256], families=FAMILIES[:4]),
        frozen={"frozen_at": f"{day}T08:00:00+00:00", "frozen_sha256": "e" * 64, "changes": []},
    )
    text = " ".join(Page(write_report(tables, tmp_path)).text.split())
    assert ("before the first cell ran" in text) != late
    assert ("an earlier record is lost" in text) == late


def test_token_outcomes_are_shown(page):
    section = page.source[page.source.index('id="tokens"') : page.source.index('id="missing"')]
    assert "near tie" in section
    assert 'class="fail">failed' in section


def test_verdict_sentences_come_before_every_table(page):
    for entry in hostile().verdict["verdicts"]:
        assert entry["sentence"] in page.text
        assert page.source.index(entry["sentence"][:25]) < page.source.index("<table")


def test_tables_and_figures_are_accessible(page):
    images = [a for tag, a in page.attributes if tag == "img"]
    assert len(images) == 2
    assert all(len(image["alt"]) > 40 for image in images)
    assert page.tags.count("caption") == page.tags.count("table")
    assert all("scope" in a for tag, a in page.attributes if tag == "th")


def test_a_synthetic_study_says_so_everywhere(page, tmp_path):
    sections = page.source.split("<section ")[2:-1]
    assert len(sections) == 10
    for section in sections:
        assert "SYNTHETIC" in section.split("</h2>")[0]
    assert "<title>SYNTHETIC: " in page.source
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    real = dataclasses.replace(tables, verdict={**tables.verdict, "synthetic": False})
    assert "SYNTHETIC" not in write_report(real, tmp_path).read_text(encoding="utf-8")


def test_published_numbers_are_labelled_and_never_tagged_synthetic(page):
    section = page.source[page.source.index('id="published"') : page.source.index('id="prov')]
    assert "Other hardware, another pair of models" in section
    listing = section[section.index("Everything that was published") :]
    assert "SYNTHETIC" not in listing
    assert "No published quantity was measured at a context length of this study" in page.text


def test_published_numbers_stand_beside_ours(tmp_path):
    design = small_design(contexts=[2048], families=FAMILIES[:4])
    page = write_report(study_tables(design), tmp_path, design=design)
    text = Page(page).text
    assert "R of spec against ar: published 0.531 [0.424, 0.606], measured" in text
    assert "[0.424, 0.606]" in text


@pytest.mark.parametrize(
    ("design", "made", "expected"),
    [
        (
            {"modes": {"ar": {"drafter": "none", "baseline": "ar"}}},
            {},
            "the design has no mode with a drafter",
        ),
        (
            {},
            {"alter": lambda row: failed_cell(row, "not_applicable", "needs a GPU")
             if row["mode"] == "spec" else row},
            "needs a GPU",
        ),
        ({}, {"alter": lambda row: row if row["mode"] == "ar" else None}, "NOT JUDGED"),
    ],
)  # fmt: skip
def test_a_study_without_results_still_has_a_report(tmp_path, design, made, expected):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:2], **design), **made)
    page = Page(write_report(tables, tmp_path))
    assert expected in page.text
    assert not re.search(r"\b(nan|None|NaT|inf)\b", page.text)


def test_missing_values_are_dashes(page):
    assert not re.search(r"\b(nan|None|NaT|inf)\b", page.text)


def test_the_page_does_not_change_with_unchanged_data(tmp_path):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    first, second = (write_report(tables, tmp_path / name) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_figures_and_report_do_without_torch():
    program = (
        "import sys, engine.figures.confirmatory, engine.figures.acceptance, engine.report;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


# --- why ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explained(tmp_path_factory) -> tuple[Page, Tables]:
    design = mechanism_design(contexts=[512])
    shown, tables = mechanism_study(design)
    return Page(write_report(tables, tmp_path_factory.mktemp("why"), shown, design)), tables


def section_of(page: Page, name: str) -> str:
    start = page.source.index(f'<section aria-labelledby="{name}"')
    return page.source[start : page.source.index("</section>", start)]


def test_the_cause_of_what_is_judged_stands_behind_the_verdict(explained):
    page, tables = explained
    found = [entry for entry in tables.verdict["verdicts"] if entry["why"]]
    assert {"spec", "spec_folded", "graph"} <= {entry["mode"] for entry in found}
    for entry in found:
        assert (entry["why"] in page.text) == entry["whole_grid"], entry["mode"]
    assert page.source.index('id="verdict"') < page.source.index('id="mechanism"')
    assert page.source.index('id="mechanism"') < page.source.index('id="numbers"')


def test_modes_that_explain_are_a_table_and_no_verdicts(explained):
    page, tables = explained
    explaining = [e for e in tables.verdict["verdicts"] if not e["whole_grid"]]
    assert {entry["mode"] for entry in explaining} >= {"oracle", "draft_free", "phase_o"}
    for entry in explaining:
        assert entry["sentence"] not in section_of(page, "verdict")
        assert f"512 tokens, {breakable(entry['mode'])}" in section_of(page, "mechanism")
    assert "spec and spec_folded are slower" in page.text


def test_the_figures_come_in_order_each_with_its_finding(explained):
    page, _ = explained
    section = section_of(page, "mechanism")
    wanted = catalogue.wanted(mechanism_design(contexts=[512]))
    places = [section.index(f'id="figure-{entry.name}"') for entry in wanted]
    assert places == sorted(places)
    assert section.count("<img") == len(wanted) == 11
    assert section.count("SYNTHETIC") >= len(wanted) + 2
    assert not page.faults
    assert not re.search(r"\b(nan|None|NaT|inf)\b", page.text)


def test_what_is_not_drawn_is_named_with_its_reason(tmp_path):
    design = mechanism_design(
        contexts=[512], device="cpu", dtype="float32", families=FAMILIES[:4], modes=modes()
    )

    def alter(row):
        if why := design.not_applicable(row["mode"]):
            return failed_cell(row, "not_applicable", why)
        return failed_cell(row) if row["mode"] == "draft_free" else row

    shown, tables = mechanism_study(design, alter=alter)
    page = Page(write_report(tables, tmp_path, shown, design))
    section = section_of(page, "mechanism")
    lines = section[section.index("Not drawn here") :]
    assert lines.count("<li>") == 4
    assert "then and here: R was published at contexts from 2048 on only" in lines
    assert "The control plane: phase_o needs a GPU: on a CPU there is no" in lines
    assert "CUDA graphs: it needs a GPU: on a CPU there is nothing to capture" in lines
    assert "If drafts were perfect and free: no mode that replays the reference was" in lines
    assert 'id="figure-draft_free"' not in section
    assert not page.faults


def test_findings_are_text(tmp_path):
    exhibits = [Exhibit("oracles", PLANTED, PLANTED, says=PLANTED)]
    exhibits += [Exhibit("relaxed", PLANTED, "", missing=PLANTED)]
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    path = tmp_path / "page.html"
    svg = tmp_path / "oracles.svg"
    svg.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    published = pd.read_csv(REPOSITORY / "config/published.csv")
    render(
        tables.verdict, tables.ratios, tables.gates, tables.tokens, published, {"oracles": svg},
        path, exhibits,
    )  # fmt: skip
    page = Page(path)
    assert "script" not in page.tags
    assert page.text.count(PLANTED) >= 5
    assert any(PLANTED in (a.get("alt") or "") for _, a in page.attributes)


def test_a_study_without_instrumented_runs_names_no_cause(tmp_path):
    design = small_design(contexts=[256], families=FAMILIES[:4], instrumented=[0, 0])
    page = Page(write_report(study_tables(design), tmp_path))
    assert "No cost is named, because no instrumented run was measured" in page.text


def test_what_a_reference_lends_is_labelled_with_whose_it_is(tmp_path):
    design = small_design(contexts=[256], families=FAMILIES[:4])
    tables = study_tables(design, noise=0.0)
    # Of a real pair, so that the tags on the page are those of the reference.
    real = {**tables.verdict, "synthetic": False}
    label = f"Reference rows, design h200: GPU, 2026-01-05, commit ccccccc, synthetic {PLANTED}"
    lent = Exhibit("phase_o", "The control plane", "A caption", "It saves", "", label, True)
    number = {
        "context": "2048", "what": "R of spec against ar", "published": 0.531,
        "published_low": 0.424, "published_high": None, "value": 0.52, "low": 0.51,
        "high": 0.53, "sentence": "at context 2048: held",
    }  # fmt: skip
    figure = tmp_path / "phase_o.png"
    figure.write_bytes(b"not looked at")
    published = pd.read_csv(REPOSITORY / "config/published.csv")
    render(
        real, tables.ratios, tables.gates, tables.tokens, published, {"phase_o": figure},
        tmp_path / "report.html", [lent], [Chain(label, True, [number])],
    )  # fmt: skip
    page = Page(tmp_path / "report.html")
    assert page.faults == []
    assert f"Not measured here. {label}" in page.text
    assert "at context 2048: held." in page.text
    assert page.text.count(label) == 3
    assert page.text.count("SYNTHETIC") >= 5
    assert 'src="data:image/png;base64,' in page.source
    assert "script" not in page.tags
