"""Analysis on known truth: chosen costs come back, planted faults show up as themselves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis.blocks import block_times
from engine.analysis.break_even import acceptance_needed, committed, draft_cost_allowed
from engine.analysis.cause import causes
from engine.analysis.explanation import explain
from engine.analysis.phases import phase_table, speaking
from engine.analysis.speedup import family_ratios
from engine.analysis.summary import context_summary
from engine.analysis.waterfall import TERMS, family_steps, family_terms, over_families
from engine.analysis.why import why
from tests.synthetic_judgements import gates_frame, tokens_frame
from tests.synthetic_rows import FAMILIES, as_frame, small_design, study

PHASES = ("draft_s", "verify_s", "repair_s", "control_s")


def planted(costs: dict[str, float], lost: float = 0.0, slower: float = 0.0, step: float = 0.04):
    """Rows whose instrumented rounds cost what is asked: seconds a round, by phase.

    `lost` is the share of the instrumented run that no phase accounts for, `slower` how much
    longer an instrumented run takes than a plain one.
    """
    design = small_design(contexts=[2048], instrumented=[1, 1])

    def alter(row):
        if row["mode"] == "ar":
            row["round_s"] = [step] * row["new_tokens"]
            return row
        rounds = row["rounds"]
        whole = sum(costs.values()) * rounds / (1 - lost)
        row["round_s"] = [whole / rounds] * rounds
        row["decode_s"] = whole
        if row["instrumented"]:
            row["decode_s"] = whole * (1 + slower)
            for name in PHASES:
                row[name] = costs[name] * rounds * (1 + slower)
        return row

    return design, as_frame(study(design, noise=0, alter=alter))


COSTS = {"draft_s": 0.05, "verify_s": 0.06, "repair_s": 0.02, "control_s": 0.004}


def test_chosen_costs_come_back():
    design, rows = planted(COSTS)
    table = phase_table(rows, design)
    for name, seconds in COSTS.items():
        assert np.allclose(table[name].astype(float), seconds)
    assert np.allclose(table["step_s"].astype(float), 0.04)
    assert np.allclose(table["committed"].astype(float), 64 / table["rounds"].astype(float))
    terms = family_terms(table)
    assert np.allclose(terms[list(TERMS)].sum(axis=1), terms["log_r"])
    assert np.allclose(terms["verification"], -math.log(0.06 / 0.04))
    assert np.allclose(terms["repair"], -math.log1p(0.02 / 0.06))
    assert np.allclose(terms["drafting"], -math.log1p(0.05 / 0.08))
    assert np.allclose(terms["control"], -math.log1p(0.004 / 0.13))
    assert np.allclose(terms[["unexplained", "instrumentation"]], 0)


@pytest.mark.parametrize(
    ("fault", "term", "size"),
    [({"lost": 0.1}, "unexplained", math.log(0.9)),
     ({"slower": 0.08}, "instrumentation", math.log(1.08))],
)  # fmt: skip
def test_planted_time_shows_up_under_its_own_name(fault, term, size):
    design, rows = planted(COSTS, **fault)
    terms = family_terms(phase_table(rows, design))
    assert np.allclose(terms[term], size)
    assert np.allclose(terms[list(TERMS)].sum(axis=1), terms["log_r"])


@pytest.mark.parametrize(
    ("costs", "cause"),
    [
        ({"draft_s": 0.3, "verify_s": 0.05, "repair_s": 0.01, "control_s": 0.001}, "drafting"),
        ({"draft_s": 0.01, "verify_s": 0.4, "repair_s": 0.01, "control_s": 0.001}, "verification"),
        ({"draft_s": 0.01, "verify_s": 0.04, "repair_s": 0.3, "control_s": 0.001}, "repair"),
        ({"draft_s": 0.01, "verify_s": 0.04, "repair_s": 0.01, "control_s": 0.3}, "control"),
        ({"draft_s": 0.001, "verify_s": 0.041, "repair_s": 0.001, "control_s": 0.001},
         "acceptance"),
    ],
)  # fmt: skip
def test_the_planted_cause_is_named(costs, cause):
    design, rows = planted(costs)
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "spec"]
    assert found["named"] == [cause]
    assert found["gated"]
    whole = sum(costs.values())
    if cause == "drafting":
        factor = whole / (whole - costs["draft_s"])
        assert found["ideals"]["drafting"]["factor"] == pytest.approx(factor)


def test_what_is_said_of_all_families_is_scaled_by_their_own_r():
    """With two families in, R of the two and costs of all would make a number of neither."""
    design, rows = planted(COSTS)
    names = list(design.family_slugs)
    out = {("2048", family, "spec"): "steady" for family in names[2:]}
    ratios = family_ratios(rows, gates_frame(design, out), tokens_frame(design), design)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "spec"]
    assert not found["gated"]
    assert found["families"] == len(names)
    said = why({"cause": found, "r": 5.0, "r_all": 0.5})
    factor = found["ideals"]["acceptance"]["factor"]
    assert f"{0.5 * factor:.2f}" in said
    assert f"{5.0 * factor:.2f}" not in said
    assert "too few passed the gates" in said


def test_r_without_a_cost_varies_over_families_as_r_does():
    """Where all families gain the same factor, the interval of R is moved and not shrunk."""
    design, rows = planted(COSTS)
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    shift = dict(zip(FAMILIES, np.linspace(-0.4, 0.4, len(FAMILIES)), strict=True))
    ratios["log_r"] += ratios["family"].map(shift)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "spec"]
    entry = next(e for e in context_summary(ratios, design) if e["mode"] == "spec")
    drafting = found["ideals"]["drafting"]
    for end in ("low", "high"):
        assert drafting[end] / drafting["factor"] == pytest.approx(
            entry["interval"][end] / entry["r"], rel=1e-6
        )
    ends = [f"{entry['r'] * drafting[end]:.2f}" for end in ("low", "high")]
    assert f"{entry['r'] * drafting['factor']:.2f} [{', '.join(ends)}] with a free draft" in why(
        {"cause": found, **entry}
    )


def test_a_cost_is_told_apart_by_the_same_families():
    """Two costs that vary together differ in every family, however wide each varies alone."""
    sizes = dict(zip(FAMILIES, np.linspace(0.1, 0.6, len(FAMILIES)), strict=True))

    def found(repair):
        design, rows = planted({"draft_s": 0.2, "verify_s": 0.04, "repair_s": 0.2,
                                "control_s": 0.001})  # fmt: skip
        phases = phase_table(rows, design)
        phases["draft_s"] = phases["family"].map(sizes)
        phases["repair_s"] = phases["draft_s"] * repair
        ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
        return causes(speaking(phases, ratios, design), design)["2048", "spec"]["named"]

    assert found(0.9) == ["drafting"]
    assert set(found(1.0)) == {"drafting", "repair"}


def test_a_cost_of_too_few_families_is_hedged():
    design, rows = planted(COSTS)
    rows = rows[rows["family"].isin(FAMILIES[:2])]
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "spec"]
    assert (len(found["named"]), found["told_apart"]) == (1, False)
    assert "of too few families to be sure" in why({"cause": found, "r": 0.5, "r_all": 0.5})


def test_a_mode_whose_rounds_differ_is_held_to_what_it_proposed():
    """A draft that stops in doubt cannot commit k tokens a round, however good it is."""
    shape = {"drafter": "model", "k": 4, "round": "folded", "bonus": True, "baseline": "ar"}
    modes = {
        "ar": {"drafter": "none", "baseline": "ar"},
        "spec": shape,
        "stops": {**shape, "policy": "confidence", "threshold": 0.5},
    }
    design = small_design(contexts=[2048], instrumented=[1, 1], modes=modes)
    rows = as_frame(study(design, noise=0))
    stops = rows["mode"].eq("stops")
    # All rounds but the first propose one token; half of these pass.
    rows.loc[stops, ["proposed", "accepted", "rounds"]] = [43, 21, 42]
    phases = phase_table(rows, design).set_index("mode")
    made = design.new_tokens - 1
    assert phases.loc["spec", "most"].unique() == pytest.approx([64 / 13])
    assert phases.loc["stops", "most"].unique() == pytest.approx([64 / 42 * (43 + 42) / made])
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "stops"]
    assert found["ideals"]["acceptance"]["factor"] == pytest.approx((43 + 42) / made)
    assert found["break_even"]["acceptance_needed"] is None
    said = why({"cause": found, "r": 0.9, "r_all": 0.9})
    assert "acceptance of" not in said
    assert "no acceptance suffices" not in said
    assert "and commits 1.5 tokens" in said


def test_where_all_is_accepted_there_is_nothing_to_gain():
    """Whatever the round's form: a repair round commits the first token as well."""
    shape = {"drafter": "model", "k": 4, "baseline": "ar", "policy": "confidence", "threshold": 0.5}
    modes = {
        "ar": {"drafter": "none", "baseline": "ar"},
        "plain": {**shape, "round": "repair"},
        "bonus": {**shape, "round": "folded", "bonus": True},
    }
    design = small_design(contexts=[2048], new_tokens=64, instrumented=[1, 1], modes=modes)
    rows = as_frame(study(design, noise=0))

    def counted(mode, **counts):
        for name, value in counts.items():
            rows[name] = [
                value if at == mode else old
                for at, old in zip(rows["mode"], rows[name], strict=True)
            ]

    counted("plain", proposed=64, rounds=16, proposed_by_position=[16] * 4)
    counted("bonus", proposed=52, rounds=11, proposed_by_position=[11] * 4)
    phases = phase_table(rows, design)
    committed = phases["committed"].astype(float).to_numpy()
    assert phases["most"].astype(float).to_numpy() == pytest.approx(committed)
    # Ten rounds of four, half of which pass, and 34 that find nothing to propose.
    counted("plain", proposed=40, rounds=44, proposed_by_position=[10] * 4)
    most = phase_table(rows, design).set_index("mode").loc["plain", "most"]
    assert most.unique() == pytest.approx([74 / 44])


def test_a_cost_that_no_family_has_is_not_named():
    design, rows = planted({**COSTS, "repair_s": 0.0})
    phases = phase_table(rows, design)
    # What the best one gains differs so much that nothing is told apart from it.
    phases["draft_s"] = phases["draft_s"] * phases["family"].map(
        dict(zip(FAMILIES, 10.0 ** np.linspace(-4, 1, len(FAMILIES)), strict=True))
    )
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    found = causes(speaking(phases, ratios, design), design)["2048", "spec"]
    assert len(found["named"]) > 1
    assert "repair" not in found["named"]


def test_repairs_that_an_ideal_leaves_are_told():
    """A round that commits four tokens where all pass still has its repair forward in the cost."""
    for repair, told in ((0.02, True), (0.0, False)):
        design, rows = planted({**COSTS, "repair_s": repair})
        ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
        phases = speaking(phase_table(rows, design), ratios, design)
        said = why({"cause": causes(phases, design)["2048", "spec"], "r": 0.5, "r_all": 0.5})
        assert ("with every proposal accepted, repairs as they are" in said) == told
        assert ("pays for, repairs as they are" in said) == told


def test_costs_that_cannot_be_told_apart_are_named_together():
    costs = {"draft_s": 0.2, "verify_s": 0.04, "repair_s": 0.2, "control_s": 0.001}
    design, rows = planted(costs)
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    found = causes(speaking(phase_table(rows, design), ratios, design), design)["2048", "spec"]
    assert set(found["named"]) == {"drafting", "repair"}


def test_steps_from_phase_to_phase():
    speed = {"ar": 1.0, "spec": 0.5, "spec_folded": 0.6, "oracle_bonus": 0.9, "draft_free": 3.0}
    shape = {"k": 4, "round": "folded", "bonus": True, "baseline": "ar"}
    modes = {
        "ar": {"drafter": "none", "baseline": "ar"},
        "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
        "spec_folded": {"drafter": "model", **shape},
        "oracle_bonus": {"drafter": "model", "acceptance": "all", **shape},
        "draft_free": {"drafter": "reference", "acceptance": "all", **shape},
    }
    design = small_design(contexts=[2048], modes=modes)
    rows = as_frame(study(design, ratio=lambda cell: speed[cell.mode], noise=0))
    steps = family_steps(block_times(rows), design)
    means = over_families(steps, ["log_step"], ["context", "before", "after"], design)
    found = {(r.before, r.after): math.exp(r.mean) for r in means.itertuples()}
    assert found == {
        ("spec", "spec_folded"): pytest.approx(1.2),
        ("spec_folded", "oracle_bonus"): pytest.approx(1.5),
        ("oracle_bonus", "draft_free"): pytest.approx(3.0 / 0.9),
    }


def test_a_step_between_two_machines_is_told():
    modes = {
        "ar": {"drafter": "none", "baseline": "ar"},
        "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
        "oracle": {"drafter": "model", "k": 4, "acceptance": "all", "round": "repair",
                   "baseline": "ar"},
    }  # fmt: skip
    design = small_design(contexts=[256, 2048], modes=modes)
    rows = as_frame(study(design, noise=0))
    ratios = family_ratios(rows, gates_frame(design), tokens_frame(design), design)
    assert explain(rows, ratios, design)[1]["apart"].tolist() == [0, 0]
    # Two families of the longer context were measured again after a boot, one block each.
    again = rows["family"].isin(FAMILIES[:2]) & rows["context"].eq("2048")
    again &= rows["mode"].eq("oracle") & rows["replicate"].eq(1)
    rows["boot_id"] = rows["boot_id"].where(~again, "another")
    steps = explain(rows, ratios, design)[1]
    assert dict(zip(steps["context"], steps["apart"], strict=True)) == {"256": 0, "2048": 2}


def test_a_step_stays_in_its_runtime_unless_that_is_what_it_changes():
    repair = {"drafter": "model", "k": 4, "round": "repair"}
    folded = {**repair, "round": "folded", "bonus": True}
    host, device, graph = (
        {"runtime": runtime, "baseline": f"ar_{runtime}"}
        for runtime in ("eager", "device", "graph")
    )
    modes = {
        **{f"ar_{on['runtime']}": {"drafter": "none", **on} for on in (host, device, graph)},
        "spec": {**repair, **host},
        "phase_o": {**repair, **device},
        "spec_folded": {**folded, **device},
        "graph": {**folded, **graph},
        "oracle": {**repair, **device, "acceptance": "all"},
        "oracle_bonus": {**folded, **graph, "acceptance": "all"},
    }
    design = small_design(
        device="cuda", dtype="bfloat16", contexts=[2048], families=FAMILIES[:1], modes=modes
    )
    rows = as_frame(study(design, noise=0))
    steps = family_steps(block_times(rows), design)
    assert list(zip(steps["before"], steps["after"], strict=True)) == [
        ("spec", "phase_o"),
        ("phase_o", "spec_folded"),
        ("spec_folded", "graph"),
        ("spec_folded", "oracle"),
        ("graph", "oracle_bonus"),
    ]


@given(k=st.integers(1, 9), bonus=st.booleans(), p=st.floats(0, 1))
def test_break_even_acceptance_is_the_inverse_of_what_a_round_commits(k, bonus, p):
    cost = committed(p, k, bonus)
    if cost > 1:
        assert committed(acceptance_needed(cost, k, bonus), k, bonus) == pytest.approx(cost)


def test_break_even_has_its_limits():
    assert acceptance_needed(5.1, 4, True) is None
    assert acceptance_needed(4.9, 4, True) == pytest.approx(0.98, abs=0.03)
    assert acceptance_needed(0.8, 4, True) == 0
    assert draft_cost_allowed(1.2, 3.0) == pytest.approx(1.8)
    assert draft_cost_allowed(3.2, 3.0) is None
