"""Figures: what they mark and say, and that unchanged data gives unchanged files."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from engine.figures import acceptance, confirmatory, ratio_axis, style
from engine.figures.forest_rows import panels
from engine.figures.published import lookup, ratio_of
from tests.synthetic_report import REPOSITORY, study_tables
from tests.synthetic_rows import FAMILIES, failed_cell, small_design

MODES = {
    "ar": {"drafter": "none", "baseline": "ar"},
    "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
    "spec_folded": {"drafter": "model", "k": 3, "round": "folded", "baseline": "ar"},
}


@functools.cache
def published():
    return pd.read_csv(REPOSITORY / "config/published.csv")


def ids(svg: Path) -> list[str]:
    return [element.get("id") for element in ET.parse(svg).iter() if element.get("id")]


def test_unchanged_data_gives_unchanged_files(tmp_path):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    files = {}
    for folder in (tmp_path / "one", tmp_path / "two"):
        paths = [folder / name for name in ("forest.svg", "forest.png", "wide.svg")]
        confirmatory.draw(tables.ratios, tables.verdict, published(), *paths)
        shares = [folder / name for name in ("acceptance.svg", "acceptance.png")]
        acceptance.draw(tables.ratios, tables.verdict, *shares)
        files[folder.name] = [path.read_bytes() for path in (*paths, *shares)]
    assert files["one"] == files["two"]


def test_families_out_are_marked(tmp_path):
    design = small_design(contexts=[2048], families=FAMILIES[:6])
    lost = {("2048", "email", "spec", 0), ("2048", "email", "spec", 1)}

    def alter(row):
        cell = (row["context"], row["family"], row["mode"], row["replicate"])
        return failed_cell(row) if cell in lost else row

    failed = {("2048", "json", "spec"): "steady"}
    tables = study_tables(design, failed=failed, alter=alter)
    svg = tmp_path / "forest.svg"
    confirmatory.draw(tables.ratios, tables.verdict, published(), svg, tmp_path / "forest.png")
    marks = [name for name in ids(svg) if name.startswith(("out-", "family-", "overall-"))]
    assert {name for name in marks if name.startswith("out-")} == {
        "out-2048-json-spec",
        "out-2048-email-spec",
    }
    assert "family-2048-json-spec" in marks
    assert "family-2048-email-spec" not in marks, "a family without R has no mark"
    assert "overall-2048-spec" in marks
    (panel,) = panels(tables.ratios, tables.verdict, published())
    assert panel.axis_label == "R, log scale; 4 of 6 families"
    shown = {mark.family: mark for mark in panel.families}
    assert len(shown["dialogue"].by_replicate) == 2
    assert panel.published[0].ratio.value == 0.531


def test_a_context_that_is_not_judged_has_no_interval(tmp_path):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:3]))
    svg = tmp_path / "forest.svg"
    confirmatory.draw(tables.ratios, tables.verdict, published(), svg, tmp_path / "forest.png")
    assert not [name for name in ids(svg) if name.startswith("overall-")]
    (panel,) = panels(tables.ratios, tables.verdict, published())
    assert panel.results[0][1].startswith("not judged")
    assert "<!-- not judged -->" in svg.read_text(encoding="utf-8")


@pytest.mark.parametrize(("contexts", "families"), [(6, 4), (1, 16)])
@pytest.mark.parametrize("columns", [1, 3])
def test_no_text_leaves_the_page(contexts, families, columns):
    design = small_design(
        contexts=[2**n for n in range(7, 7 + contexts)], families=FAMILIES[:families], modes=MODES
    )
    tables = study_tables(design, spread=0.3)
    shown = panels(tables.ratios, tables.verdict, published())
    note = confirmatory.published_note(tables.verdict, published())
    with style.look():
        figure = confirmatory._figure(shown, tables.verdict, [note], min(columns, contexts))
        figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    assert width <= 4.3 or columns > 1
    for text in figure.findobj(Text):
        box = text.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        if text.get_text() and text.get_visible():
            assert box.x0 > 0, text
            assert box.x1 < width, text
            assert box.y0 > 0, text
            assert box.y1 < height, text


def test_synthetic_studies_say_so(tmp_path):
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    for synthetic in (True, False):
        verdict = {**tables.verdict, "synthetic": synthetic}
        svgs = tmp_path / f"forest-{synthetic}.svg", tmp_path / f"acceptance-{synthetic}.svg"
        confirmatory.draw(tables.ratios, verdict, published(), svgs[0], tmp_path / "f.png")
        acceptance.draw(tables.ratios, verdict, svgs[1], tmp_path / "a.png")
        for svg in svgs:
            assert ("SYNTHETIC" in svg.read_text(encoding="utf-8")) == synthetic


def test_names_that_the_font_lacks_fall_back_to_the_slug():
    assert style.printable("news", "news", 1.4) == "news"
    assert style.printable("新聞", "family-1234", 1.4) == "family-1234"
    assert style.printable("a $x$ <b>", "a-x", 1.4) == "a $x$ <b>"
    long = style.printable("word " * 30, "word", 1.4)
    assert long.endswith("…")
    assert style.text_width(long, style.LABEL_PT) <= 1.4


def test_odd_family_names_can_be_drawn(tmp_path):
    names = ["新聞", "<script>alert(1)</script>", "emoji 🚀", "cost $x$ & more"]
    prompts = {"source": "jsonl", "path": "own.jsonl"}
    tables = study_tables(small_design(contexts=[256], families=names, prompts=prompts))
    svg = tmp_path / "forest.svg"
    confirmatory.draw(tables.ratios, tables.verdict, published(), svg, tmp_path / "forest.png")
    assert not [element for element in ET.parse(svg).iter() if element.tag.endswith("script")]


def test_a_mode_looks_the_same_everywhere():
    modes = ["ar", "ar_graph", "spec", "phase_o", "spec_folded", "relaxed", "oracle"]
    modes += ["oracle_bonus", "graph_draft", "graph_verify", "graph", "graph_naive", "draft_free"]
    standard = [style.mode_look(mode) for mode in modes]
    assert len(set(standard)) == len(standard)
    assert style.mode_look("a_mode_of_mine") == style.mode_look("a_mode_of_mine")
    assert style.mode_look("a_mode_of_mine") not in standard


def test_the_ratio_axis_holds_one_and_all_own_values():
    low, high = ratio_axis.limits([0.4, 0.6, float("nan")], [0.3])
    assert low < 0.3
    assert high > 1
    low, high = ratio_axis.limits([0.999, 1.002], [0.5])
    assert low > 0.9, "a published value far away must not flatten the study's own"
    for ends in ((0.3, 1.1), (0.96, 1.05), (0.99, 1.01), (0.5, 6), (0.01, 200)):
        ticks = ratio_axis.ticks(*ends)
        assert 1 in ticks
        assert 3 <= len(ticks) <= 16


def test_published_numbers_stand_at_their_own_context_only():
    assert ratio_of(published(), "spec", "8192").low == 0.36
    assert ratio_of(published(), "spec", "512") is None
    assert lookup(published(), "phase_o_latency_saving", "") is None, "a range without a value"
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    note = confirmatory.published_note(tables.verdict, published())
    assert "other hardware" in note
    assert "Not drawn" in note
    (panel,) = panels(tables.ratios, tables.verdict, published())
    assert panel.published == ()


def test_acceptance_message_and_curves():
    design = small_design(contexts=[256, 512], modes=MODES)
    tables = study_tables(design)
    shown = acceptance.curves(tables.ratios, ["256", "512"], list(MODES))
    assert [(curve.context, curve.mode) for curve in shown] == [
        (context, mode) for context in ("256", "512") for mode in ("spec", "spec_folded")
    ]
    rows = tables.ratios[(tables.ratios["context"] == "256") & (tables.ratios["mode"] == "spec")]
    first = [sum(row[0] for row in rows[f"{what}_by_position"]) for what in ("accepted", "judged")]
    assert shown[0].of_judged[0] == pytest.approx(first[0] / first[1])
    assert np.all(np.diff(shown[0].of_proposed) <= 0)
    assert acceptance.message(shown).startswith("Acceptance falls from ")
    assert acceptance.message(shown).endswith("at the last position (spec and spec_folded)")
    assert "no acceptance" in acceptance.message([])
    accepted = study_tables(design, agreement=1.0)
    full = acceptance.curves(accepted.ratios, ["256"], ["spec"])
    assert acceptance.message(full) == "Acceptance stays at 1.00 up to position 4 (spec)"


def test_acceptance_of_blocks_of_unequal_length():
    tables = study_tables(small_design(contexts=[256], families=FAMILIES[:4]))
    ratios = tables.ratios.copy()
    for what in ("proposed", "judged", "accepted"):
        column = f"{what}_by_position"
        ratios[column] = [counts[: 1 + n] for n, counts in enumerate(ratios[column])]
    (curve,) = acceptance.curves(ratios, ["256"], ["spec"])
    assert curve.of_proposed.size == 4
    assert np.isfinite(curve.low).all()
