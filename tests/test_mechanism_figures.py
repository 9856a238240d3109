"""The mechanism figures: which a design can have, and that they fit their page."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.text import Text
from typer.testing import CliRunner

from engine.__main__ import app
from engine.figures import (
    acceptance,
    catalogue,
    published,
    style,
)
from engine.figures.mechanism import plot
from engine.figures.message import message as headline
from engine.figures.study import Study, main_verdict
from engine.preparation.files import read_json, write_json
from engine.tables import write_frame
from tests.drawn_figures import DRAWN, made, one_context, said
from tests.synthetic_mechanism import mechanism_design, mechanism_study, modes
from tests.synthetic_report import REPOSITORY
from tests.synthetic_rows import FAMILIES, small_design


def test_every_entry_of_the_catalogue_has_a_drawing():
    assert [entry.name for entry in catalogue.CATALOGUE] == list(DRAWN)
    assert [entry.name for entry in catalogue.wanted(mechanism_design())] == list(DRAWN)
    for entry in catalogue.CATALOGUE:
        assert (REPOSITORY / f"engine/figures/{entry.name}.py").exists()


def test_the_catalogue_is_plain_data():
    program = (
        "import sys, engine.figures.catalogue;"
        "sys.exit(bool({'torch', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


# --- which figures a design can have ------------------------------------------------------


def lacks(**overrides) -> dict[str, str]:
    return {entry.name: why for entry, why in catalogue.lacking(small_design(**overrides))}


def test_a_cpu_says_that_the_control_plane_needs_a_gpu():
    missing = lacks(modes=modes())
    assert missing["phase_o"].startswith("phase_o needs a GPU: on a CPU there is no synchron")
    assert set(missing) == {"phase_o", "cuda_graph", "predicted", "sweep"}


def test_a_plain_pair_has_what_its_two_modes_can_fill():
    assert [entry.name for entry in catalogue.wanted(small_design())] == [
        "chain", "diagnosis", "waterfall", "break_even", "memory",
    ]  # fmt: skip


def test_without_a_draft_model_there_is_no_trace():
    ar = {"drafter": "none", "baseline": "ar"}
    free = {"drafter": "reference", "k": 4, "acceptance": "all", "round": "folded", "bonus": True}
    missing = lacks(modes={"ar": ar, "draft_free": {**free, "baseline": "ar"}})
    assert set(missing) == set(DRAWN) - {"draft_free", "waterfall"}
    assert lacks(instrumented=[0, 0])["waterfall"].startswith("no run of the design")
    assert all(lacks(modes={"ar": ar}).values())


def test_the_chain_knows_the_contexts_that_were_published():
    table = pd.read_csv(REPOSITORY / "config/published.csv")
    assert published.contexts_of(table, "spec") == list(catalogue._PUBLISHED_CONTEXTS)
    assert lacks(contexts=[512])["chain"] == "R was published at contexts from 2048 on only"


# --- the page -----------------------------------------------------------------------------


LONG = "a_mode_with_a_name_as_long_as_names_may_be_in_this_project"


def crowded() -> Study:
    """Three contexts, wide intervals, a long name."""
    plan = {LONG if name == "spec_folded" else name: mode for name, mode in modes().items()}
    claims = [{"claim": "formula", "mode": LONG, "against": "ar"}]
    design = mechanism_design(
        contexts=[256, 2048, 16384], modes=plan, families=FAMILIES[:4], claims=claims
    )
    return mechanism_study(design, {LONG: 0.6}, spread=0.3, noise=0.02)[0]


def undrawn_ticks(figure) -> set[Text]:
    """Labels that matplotlib holds for ticks outside of an axis and never draws."""
    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    return {
        label
        for axis in axes
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }


@pytest.mark.parametrize("study", [made, crowded, one_context], ids=["two", "crowded", "one"])
def test_no_text_leaves_the_page(study):
    shown = study()
    for name, module in DRAWN.items():
        if name == "chain" and shown.contexts == ["512"]:
            continue  # nothing was published there, and the catalogue knows
        with style.look():
            figure, _ = module.draw(shown)
            figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        assert width == pytest.approx(style.TALL_IN, abs=0.07), name
        for text in set(figure.findobj(Text)) - undrawn_ticks(figure):
            box = text.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
            if text.get_text() and text.get_visible() and text.get_window_extent().width:
                assert box.x0 > 0, (name, text)
                assert box.x1 < width, (name, text)
                assert box.y0 > 0, (name, text)
                assert box.y1 < height, (name, text)


def test_unchanged_data_gives_unchanged_files_that_say_synthetic(tmp_path):
    real = dataclasses.replace(made(), verdict={**made().verdict, "synthetic": False})
    for name in DRAWN:
        files = [tmp_path / f"{name}{n}.svg" for n in range(3)]
        for path, study in zip(files, (made(), made(), real), strict=True):
            plot(name, study, path, Path(f"{path}.png"))
        first, again, plain = (path.read_text(encoding="utf-8") for path in files)
        assert first == again
        assert "SYNTHETIC" in first
        assert "SYNTHETIC" not in plain


def test_published_values_stand_beside_ours():
    table = made().published
    assert [at for at, _ in published.beside(table, "oracle_ratio", "4096")] == ["4096"]
    apart = published.beside(table, "oracle_ratio", "512")
    assert [at for at, _ in apart] == ["2048", "4096", "8192"]
    assert published.beside(table, "spec_folded_ratio", "512") == []
    assert "2048, 4096 and 8192 tokens, which this study has not" in published.note(
        ["512"], [at for at, _ in apart]
    )
    assert published.span_of(table, "phase_o_latency_saving") == (0.038, 0.045)


@pytest.mark.parametrize("name", ["oracles", "waterfall"])
def test_the_command_takes_the_tables_of_the_catalogue(name, tmp_path):
    write_json(made().verdict, tmp_path / "verdict.json")
    tables = [tmp_path / f"{table}.parquet" for table in catalogue.named(name).tables]
    for path in tables:
        write_frame(made().tables[path.stem], path)
    files = {kind: tmp_path / f"{name}.{kind}" for kind in ("svg", "png", "json")}
    words = ["--figure", name, "--verdict", tmp_path / "verdict.json"]
    words += ["--published", REPOSITORY / "config/published.csv", "--svg", files["svg"]]
    words += ["--png", files["png"], "--output", files["json"], *tables]
    CliRunner().invoke(app, ["plot-mechanism", *map(str, words)], catch_exceptions=False)
    assert read_json(files["json"])["message"] == said(name, made())
    assert files["svg"].stat().st_size > 1000
    assert files["png"].stat().st_size > 1000


# --- what the study set out to judge ------------------------------------------------------


def test_the_main_figures_show_the_whole_grid_only():
    verdict = made().verdict
    assert {entry["mode"] for entry in main_verdict(verdict)["verdicts"]} == {"spec", "spec_folded"}
    assert (
        headline(main_verdict(verdict))
        == "spec and spec_folded are slower than ar at both contexts"
    )
    assert acceptance._modes(verdict) == ["spec", "spec_folded"]
    parts = {**verdict, "verdicts": [e for e in verdict["verdicts"] if not e["whole_grid"]]}
    assert main_verdict(parts)["verdicts"] == parts["verdicts"]
    free = [e for e in verdict["verdicts"] if e["mode"] == "draft_free"]
    assert acceptance._modes({**verdict, "verdicts": free}) == ["draft_free"]
