"""The mechanism figures say what the data say, in both directions, and what is not there."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from engine.analysis.claims import OPEN
from engine.figures import (
    break_even,
    chain,
    diagnosis,
    marks,
    memory,
    oracles,
    phase_o,
    predicted,
    relaxed,
    style,
    sweep,
    waterfall,
)
from engine.figures.mechanism import plot
from engine.figures.message import families_of
from engine.figures.study import NothingToShow, Ratio, ratio_of
from tests.drawn_figures import DRAWN, made, one_context, said
from tests.synthetic_mechanism import SPEEDS, mechanism_design, mechanism_study, modes, trace_of
from tests.synthetic_rows import FAMILIES, failed_cell


def test_the_chain_holds_the_published_form_against_whole_rounds_as_graphs():
    study, _ = mechanism_study(mechanism_design(), {"spec": 0.5, "graph": 1.2})
    words = said("chain", study)
    assert words.startswith(
        "Done as published, R was 0.48-0.53 and, measured again, 0.50; graph, whole"
    )
    assert words.endswith("rounds as graphs, reaches 1.20")
    rows = [(row.mode, row.beside[0].value) for row in map(chain._row, _ratios(study))]
    assert {("spec", 0.531), ("draft_free", 4.46)} <= set(rows)
    nothing = dataclasses.replace(study, tables={"chain": study.tables["chain"].iloc[:0]})
    with pytest.raises(NothingToShow):
        chain.draw(nothing)


def _ratios(study):
    told = study.tables["chain"]
    return told[told["quantity"].str.endswith("_ratio")].to_dict("records")


def test_phase_o_saves_or_costs():
    assert "(phase_o) saves 5.5% at 512" in said("phase_o", one_context())
    slower = one_context({"phase_o": 0.5})
    assert "(phase_o) costs 4.0% at 512" in said("phase_o", slower)
    step = {"context": "512", "before": "spec", "after": "phase_o", "families": 4}
    open_ = phase_o.message([step | {"mean": 0.01, "low": -0.02, "high": 0.04}])
    assert open_.endswith("changes the time by -1.0% at 512 tokens, which may be chance")
    few = phase_o.message([step | {"mean": 0.01, "low": np.nan, "high": np.nan}])
    assert few.endswith("which may be chance")


def test_synchronisations_are_counted_a_round():
    study = one_context(syncs=(8, 2))
    counts = phase_o._synchronisations(study, phase_o.control_steps(study))
    assert [(mode, syncs) for _, mode, syncs, _ in counts] == [("spec", 8.0), ("phase_o", 2.0)]


def test_oracles_say_whether_even_they_are_slower():
    slower = said("oracles", one_context({"oracle": 0.86, "oracle_bonus": 0.92}))
    assert slower.startswith("With every proposal accepted, R is 0.86-0.92 instead of 0.52-0.62")
    assert slower.endswith(": slower even so")
    assert said("oracles", one_context({"oracle": 1.3, "oracle_bonus": 1.4})).endswith(
        "R is 1.30-1.40 instead of 0.52-0.62: faster then"
    )
    mixed = said("oracles", one_context({"oracle": 0.9, "oracle_bonus": 1.4}))
    assert mixed.endswith("R is 0.90-1.40 instead of 0.52-0.62")


def test_an_oracle_is_not_held_against_graphs_of_a_part():
    on_device = modes()
    for name in ("oracle", "oracle_bonus"):
        on_device[name] |= {"runtime": "device", "baseline": "ar_device"}
    design = mechanism_design(contexts=[512], families=FAMILIES[:4], modes=on_device)
    study, _ = mechanism_study(design)
    assert "instead of 0.55-0.64" in said("oracles", study)  # graph_draft, for one, has 0.77


@pytest.mark.parametrize(("r", "kept"), [(0.8, "0%"), (0.4, "0%")])
def test_relaxed_follows_the_largest_delta(r, kept):
    text = said("relaxed", one_context({"relaxed": 0.7, "relaxed_2": r}))
    assert text == (
        f"From exact acceptance to delta 2, R goes from 0.52 to {r:.2f} and the text kept from "
        f"100% to {kept}"
    )
    points = relaxed.points_of(one_context())
    assert [(point.mode, point.delta) for point in points] == [
        ("spec", 0.0), ("relaxed", 1.0), ("relaxed_2", 2.0),
    ]  # fmt: skip


def test_what_is_not_measured_at_a_context_is_not_held_against_it():
    design = mechanism_design(modes=modes({"contexts": 1, "families": 4}), families=FAMILIES[:4])
    study, _ = mechanism_study(design, {"spec": 0.5})
    assert {point.context for point in relaxed.points_of(study)} == {"2048"}
    with style.look():
        figure, text = oracles.draw(study)
    assert len(figure.axes) == 1
    assert "instead of 0.50-0.62" in text


@pytest.mark.parametrize("r", [4.3, 0.8])
def test_draft_free_gives_its_ratio(r):
    text = said("draft_free", one_context({"draft_free": r}))
    assert text == f"With perfect drafts at no cost and k = 4, R is {r:.2f}"


def test_the_waterfall_blames_what_the_verdict_blames():
    entries = [
        {"context": "256", "mode": "spec", "cause": {"named": ["drafting"]}},
        {"context": "512", "mode": "spec", "cause": {"named": ["verification", "repair"]}},
        {"context": "512", "mode": "spec_folded", "cause": {"named": []}},
    ]
    panels = {(e["context"], e["mode"]): [{"gated": True}] for e in entries}
    assert waterfall.message(entries, panels) == (
        "The cost to blame: drafting (spec at 256 tokens); verification and repair forwards (spec "
        "at 512 tokens); no single cost (spec_folded at 512 tokens)"
    )
    loose = {key: [{"gated": False}] for key in panels}
    assert waterfall.message(entries[:1], loose).endswith("(families that failed a gate included)")
    entries[0]["cause"] = None
    assert waterfall.message(entries[:1], panels).startswith("Where the time of spec")


def test_a_study_can_be_drawn_at_one_of_its_contexts():
    study = made().at("4096")
    assert {context for context, _ in waterfall.terms_of(study)} == {"4096"}
    assert {str(entry["context"]) for entry in study.verdict["verdicts"]} == {"4096"}
    with style.look():
        figure, _ = waterfall.draw(study)
    heads = [text.get_text() for text in figure.findobj(Text)]
    assert any("4096 tokens" in head for head in heads)
    assert not any("2048 tokens" in head for head in heads)


def test_the_terms_of_the_waterfall_multiply_to_r():
    for panel in waterfall.terms_of(made()).values():
        *terms, whole = panel
        assert whole["term"] == "log_r"
        assert sum(term["mean"] for term in terms) == pytest.approx(whole["mean"])


def test_the_waterfall_shows_the_whole_grid_and_its_intervals(tmp_path):
    assert {mode for _, mode in waterfall.terms_of(made())} == {"spec", "spec_folded"}
    plot("waterfall", made(), tmp_path / "w.svg", tmp_path / "w.png")
    ids = [e.get("id") for e in ET.parse(tmp_path / "w.svg").iter() if e.get("id")]
    # Two contexts, two modes.
    for term in ("drafting", "unexplained", "instrumentation", "log_r"):
        assert ids.count(f"interval-{term}") == 4


def test_predictions_are_counted_inside():
    shown = predicted.curves(made())
    named = ("spec", "phase_o", "spec_folded", "folded_device")
    assert {curve.modes for curve in shown} == {(name,) for name in named}
    frame = pd.DataFrame({"inside": [True, False, True], "gated": [True] * 3})
    frame = frame.assign(r=0.5, low=0.45, high=[0.55, 0.55, 0.75])
    assert predicted.message(shown, frame).endswith(
        "; 2 of 3 measured R lie inside a prediction of ±10% (median)"
    )
    none = predicted.message(shown, frame.iloc[:0])
    assert none.endswith("no measured R stands beside it")
    best = [curve.best for curve in shown]
    assert all(row["r"] == curve.table["r"].max() for row, curve in zip(best, shown, strict=True))
    highest = max(shown, key=lambda curve: curve.best["r"])
    # It is one form's best k: the others have theirs, of another R.
    assert f" with {highest.name} at k = " in none
    alone = predicted.message([c for c in shown if c.modes == highest.modes], frame)
    assert " with " not in alone


def place(needed, allowed, context="512", gated=True) -> break_even.Place:
    even = {"acceptance_needed": needed, "draft_cost_allowed": allowed}
    return break_even.Place(
        context, "spec", 4, False, 0.7, (0.6, 0.8), 1.3, 1.5, 8, even, gated
    )  # fmt: skip


def test_break_even_says_what_would_do():
    assert break_even.message([place(0.9, 0.4)]) == (
        "R = 1 for spec: takes a token acceptance of 0.90, here 0.70; drafting may cost 0.4 "
        "steps, here 1.3"
    )
    assert break_even.message([place(None, None)]) == (
        "R = 1 for spec: no acceptance suffices; not even a free draft would do"
    )
    assert "no acceptance suffices; drafting may cost 0.4 steps" in break_even.message(
        [place(None, 0.4)]
    )
    assert "here 0.70; not even a free draft would do" in break_even.message([place(0.9, None)])
    two = break_even.message([place(None, None), place(0.9, None, "1024")])
    assert two == (
        "R = 1 for spec at 512 tokens is out of reach of any acceptance; for spec at 1024 tokens "
        "takes a token acceptance of 0.90, here 0.70"
    )
    three = [place(None, None, c) for c in ("1", "2")] + [place(0.9, None, "3")]
    assert break_even.message(three) == (
        "No acceptance alone gives R = 1 in 2 of 3 cases; in the others some does"
    )
    assert break_even.message([place(0.9, None, c) for c in ("1", "2")] + [place(0.8, 1.0)]) == (
        "In all 3 cases some acceptance gives R = 1"
    )
    assert break_even.message([place(0.9, 0.4, gated=False)]).endswith("a gate included)")


def test_break_even_places_the_mode_where_its_rounds_are():
    for found in break_even.places(made()):
        entry = made().entry(found.context, found.mode)
        even = entry["cause"]["break_even"]
        tokens = sum(found.p**j for j in range(found.k + found.bonus))
        assert tokens == pytest.approx(even["committed"])
        assert found.draft + found.other == pytest.approx(even["round_cost_steps"])
        assert found.quartiles[0] <= found.quartiles[1]


def test_the_published_task_is_placed_by_its_own_numbers():
    theirs = break_even.published_place(made())
    assert theirs.p == pytest.approx(0.73, abs=0.01)
    assert theirs.draft / (theirs.draft + theirs.other) == pytest.approx(0.608)
    tokens = sum(theirs.p**j for j in range(4))
    assert tokens / (theirs.draft + theirs.other) == pytest.approx(2.478 / 4.413)
    without = dataclasses.replace(made(), published=made().published.iloc[:0])
    assert break_even.published_place(without) is None


def test_one_family_is_one_family():
    assert [families_of(n) for n in ([1], [8, 8], [8, 4], [])] == [
        "1 family", "8 families", "4 to 8 families", "0 families",
    ]  # fmt: skip


def test_a_sweep_says_of_each_claim_whether_it_held():
    text = said("sweep", one_context({"spec": 0.4, "spec_folded": 0.8}))
    assert "alpha / (c + 1)): " in text
    assert "2.1x instead of 1.3x): held at context 512" in text
    assert "did not hold at context 512" in said(
        "sweep", one_context({"spec": 0.8, "spec_folded": 0.4})
    )
    claims = made().tables["claims"]
    assert sweep.headline(claims).startswith("Of 4 claims ")
    untold = claims.assign(outcome=OPEN)
    assert sweep.headline(untold) == "None of 4 claims can be told"
    only = claims.iloc[0]
    assert sweep.headline(claims.iloc[:1]) == (
        f"{only['what']} is {only['value']:.2f}: the claim {only['outcome']}"
    )


def test_memory_stands_on_its_side_of_the_card():
    small = memory.Held("512", "ar", 1, 1.0, 0.5, 2.0)
    two = dataclasses.replace(small, mode="spec", models=2, weights=1.9)
    assert memory.message([small, two]) == (
        "Two models and their caches take 2.4 GiB, 1.60 times what one takes: within an 8 GB card"
    )
    large = dataclasses.replace(two, weights=9.0)
    assert memory.message([small, large]).endswith("more than an 8 GB card has")
    other = [dataclasses.replace(held, context="1024") for held in (small, large)]
    assert memory.message([small, two, *other]).endswith("times what one takes")


@pytest.mark.parametrize(("agreement", "low", "high"), [(0.95, 94, 100), (0.2, 20, 70)])
def test_diagnosis_gives_the_shares_at_the_published_limits(agreement, low, high):
    trace = trace_of(mechanism_design(contexts=[512]), agreement)
    ranks = diagnosis.curves(trace, ["512"], "rank", diagnosis._RANKS, diagnosis.RANK)
    gaps = diagnosis.curves(trace, ["512"], "gap", diagnosis._GAPS, diagnosis.GAP)
    assert ranks[0].within == pytest.approx((trace["rank"] <= 5).mean())
    assert gaps[0].within == pytest.approx((trace["gap"] <= 1).mean())
    shares = [int(n) for n in re.findall(r"(\d+)%", diagnosis.message(ranks, gaps))]
    assert len(shares) == 2
    assert all(low <= share <= high for share in shares)


# --- what has no measurement --------------------------------------------------------------


def test_families_that_failed_a_gate_are_told_apart():
    cells = {(str(512), family, mode): "steady" for family in FAMILIES[:4] for mode in SPEEDS}
    study = one_context(failed=cells)
    ratio = ratio_of(study.entry("512", "oracle"))
    assert ratio == Ratio(pytest.approx(0.86, rel=0.02), None, 4, gated=False)
    for name in ("oracles", "relaxed", "draft_free", "waterfall", "break_even", "predicted"):
        assert said(name, study).endswith("(families that failed a gate included)"), name
    row = marks.verdict_row(study.entry("512", "oracle"))
    assert row.numbers == "0.86, no interval"
    assert marks.loose([row]) == [
        "oracle: too few families passed the timing gates; R of all, no verdict."
    ]
    elsewhere = dataclasses.replace(row, ratio=dataclasses.replace(ratio, gated=True))
    assert marks.loose([row, elsewhere])[0].startswith("oracle in part: too few")
    assert marks.loose([elsewhere]) == []


def test_a_study_in_which_all_failed_says_so_in_place_of_each_figure(tmp_path):
    study = one_context(alter=lambda row: failed_cell(row))
    for name in set(DRAWN) - {"diagnosis", "predicted"}:
        told = plot(name, study, tmp_path / "a.svg", tmp_path / "a.png")
        assert told["missing"], name
        assert (tmp_path / "a.svg").exists()
        with pytest.raises(NothingToShow):
            said(name, study)
