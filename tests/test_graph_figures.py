"""What graphs speed up and hold, and times of two machines, as figures tell them."""

from __future__ import annotations

import re

import pytest
from matplotlib.text import Text

from engine.analysis import graph_parts
from engine.figures import (
    cuda_graph,
)
from tests.drawn_figures import DRAWN, made, said
from tests.synthetic_mechanism import mechanism_design, mechanism_study, modes
from tests.synthetic_rows import FAMILIES


def test_graphs_say_what_they_speed_up_and_how_far_the_naive_way_came():
    study = made()
    told = said("cuda_graph", study)
    assert re.match(r"Graphs make drafting [\d.-]+ times as fast and verification [\d.-]+", told)
    assert "with one a position, memory ends after 8 of 26" in told
    assert "whole rounds as one graph reach R 1.1" in told
    gains = cuda_graph.gains_of(study)
    assert {(g.mode, g.phase) for g in gains} == {
        ("graph", "draft"), ("graph", "verify"), ("graph_draft", "draft"),
        ("graph_verify", "verify"),
    }  # fmt: skip
    assert graph_parts.counterpart(study.modes, "graph_draft") == "phase_o"
    naive = [pool for pool in cuda_graph.pools_of(study) if pool.mode == "graph_naive"]
    assert [(p.graphs, p.planned, p.ended) for p in naive] == [(8, 26, "out of memory")]
    assert naive[0].whole == pytest.approx(3 * 26 / 8)


def test_a_mode_is_found_beside_another_that_is_measured_on_a_part():
    """As in the designs: graph on the whole grid, its like on the device on a part of it."""
    whole = {
        **modes({"families": 4}),
        "graph": {**modes()["graph"]},
        "ar_graph": modes()["ar_graph"],
    }
    study, _ = mechanism_study(mechanism_design(modes=whole))
    assert study.modes["graph"]["measured_on"] != study.modes["folded_device"]["measured_on"]
    assert graph_parts.counterpart(study.modes, "graph") == "folded_device"
    assert ("graph", "verify") in {(g.mode, g.phase) for g in cuda_graph.gains_of(study)}


def test_the_pool_that_is_shown_does_not_depend_on_the_order_of_rows():
    def some(row):
        if row["mode"] == "graph_naive":
            planned = 26 + FAMILIES.index(row["family"])
            return {**row, "graphs_planned": planned, "graph_pool_bytes": planned << 28}
        return row

    study = mechanism_study(alter=some)[0]
    rows = study.tables["rows"]
    found = [
        graph_parts.pools(shuffled, study.modes, ["2048"])[-1]
        for seed in range(3)
        for shuffled in [rows.sample(frac=1.0, random_state=seed)]
    ]
    assert found[0] == found[1] == found[2]
    # The least share of what was planned, and what those very graphs held.
    assert (found[0].graphs, found[0].planned, found[0].gib) == (8, 29, 29 / 4)


def test_only_memory_is_called_memory():
    def late(row):
        return {**row, "status": "timed_out"} if row["mode"] == "graph_naive" else row

    told = said("cuda_graph", mechanism_study(alter=late)[0])
    assert "with one a position, a cell timed out after 8 of 26" in told


def test_claims_that_cannot_be_told_are_shown_beside_r():
    """All of them of two machines: the figure says so, and draws what was measured."""
    design = mechanism_design(
        claims=[{"claim": "peer_static_graph", "mode": "hf_static", "against": "ar_graph"}],
        modes={
            **modes({"families": 4}),
            "hf_static": {"drafter": "none", "runtime": "hf_static", "baseline": "hf_static",
                          "only": {"families": 4}},
        },
    )  # fmt: skip

    def elsewhere(row):
        return {**row, "boot_id": "another"} if row["mode"] == "hf_static" else row

    study, _ = mechanism_study(design, alter=elsewhere)
    figure, said_ = DRAWN["sweep"].draw(study)
    assert "all families are left out, measured on two machines" in said_
    words = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "the claim" not in words.lower().replace("claim of this project", "")
    assert "Claims, " not in words
    assert "R, log scale" in words


def test_a_gain_is_the_ratio_of_the_same_phase():
    """Twice the time a token without graphs, whatever the whole takes."""

    def twice(row):
        if row["mode"] == "phase_o" and row.get("draft_s"):
            row = {**row, "draft_s": 2.0 * row["proposed"]}
        if row["mode"] == "graph_draft" and row.get("draft_s"):
            row = {**row, "draft_s": 0.5 * row["proposed"]}
        return row

    gains = cuda_graph.gains_of(mechanism_study(alter=twice)[0])
    found = [g.ratio for g in gains if g.mode == "graph_draft"]
    assert found == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(
    ("again", "steps", "gains"),
    [
        (
            {"spec", "phase_o"},
            "spec → spec_folded.",
            "graph_draft against phase_o and graph_verify against phase_o.",
        ),
        (
            {"graph_draft", "graph_verify", "graph", "phase_o"},
            "spec → phase_o and spec_folded → graph.",
            "graph against folded_device.",
        ),
        ({"graph_naive", "ar_graph"}, None, None),
    ],
)
def test_times_of_two_machines_are_told(again, steps, gains):
    """Modes that were measured again on another card say so where their times are divided."""

    def elsewhere(row):
        return {**row, "device_uuid": "another"} if row["mode"] in again else row

    shown = mechanism_study(alter=elsewhere)[0]
    for name, told in (("waterfall", steps), ("cuda_graph", gains)):
        figure, _ = DRAWN[name].draw(shown)
        # A note is a text a line.
        words = " ".join(text.get_text() for text in figure.findobj(Text))
        if told is None:
            assert "two machines" not in words
        else:
            assert f"Measured on two machines: {told}" in words
