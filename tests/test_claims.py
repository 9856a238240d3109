"""Claims of another source: the word follows the interval, and the sentence says both."""

import dataclasses
import math
import re

import pytest

from engine.analysis.claims import HELD, NOT_HELD, OPEN, claimed_range, judge_claims, outcome
from engine.analysis.latency import arrivals, latency
from engine.analysis.phases import phase_table
from engine.claims import claims
from engine.design import DesignError
from engine.limits import Inference
from tests.synthetic_report import study_tables
from tests.synthetic_rows import FAMILIES, failed_cell, small_design

_FOLDED = {"drafter": "model", "k": 4, "round": "folded", "bonus": True, "baseline": "ar"}
MODES = {
    "ar": {"drafter": "none", "baseline": "ar"},
    "fixed": _FOLDED,
    "adaptive": {**_FOLDED, "k": 8, "policy": "adaptive"},
    "first_plain": {**_FOLDED, "policy": "first_plain"},
}
_COOL = {"temperature": 0.1}
_DRAWN = {**_FOLDED, "acceptance": "rejection", "sampling": _COOL, "baseline": "ar_cool"}
# Of every claim but the formula, two modes that it may be about.
OTHERS = {
    **MODES,
    "windowed": {**_FOLDED, "draft_window": 64},
    "recomputed": {**_FOLDED, "target_cache": "recomputed"},
    "ar_cool": {"drafter": "none", "sampling": _COOL, "baseline": "ar_cool"},
    "ar_warm": {"drafter": "none", "sampling": {"temperature": 1.0}, "baseline": "ar_warm"},
    "cool": _DRAWN,
    "warm": {**_DRAWN, "sampling": {"temperature": 1.0}, "baseline": "ar_warm"},
    "unequal": {**_DRAWN, "draft_sampling": {"temperature": 0.5}},
    "hf_generate": {"drafter": "none", "runtime": "hf", "baseline": "hf_generate"},
    "hf_assisted": {**_FOLDED, "runtime": "hf", "baseline": "hf_generate"},
    "hf_static": {"drafter": "none", "runtime": "hf_static", "baseline": "hf_static"},
    "ar_graph": {"drafter": "none", "runtime": "graph", "baseline": "ar_graph"},
    "graph": {**_FOLDED, "runtime": "graph", "baseline": "ar_graph"},
}
PAIRS = {
    "longer_blocks": ("adaptive", "fixed"), "formula": ("fixed", "ar"),
    "adaptive": ("adaptive", "fixed"), "first_plain": ("first_plain", "fixed"),
    "window": ("windowed", "fixed"), "window_acceptance": ("windowed", "fixed"),
    "kept_cache": ("fixed", "recomputed"), "temperature": ("warm", "cool"),
    "unequal_temperature": ("unequal", "cool"), "peer_plain": ("hf_generate", "ar"),
    "peer_assisted": ("hf_assisted", "fixed"), "peer_static_graph": ("hf_static", "ar_graph"),
    "peer_assisted_graph": ("hf_assisted", "graph"),
}  # fmt: skip


def design(*asked, **more):
    return small_design(
        claims=[dict(zip(("claim", "mode", "against"), words, strict=True)) for words in asked],
        **{"contexts": [2048], "families": FAMILIES[:4], "modes": MODES, "instrumented": [1, 0]}
        | more,
    )


def judged(plan, speeds, **more):
    tables = study_tables(plan, ratio=lambda cell: speeds.get(cell.mode, 1.0), **more)
    return judge_claims(tables.rows, tables.ratios, tables.gates, plan).to_dict("records")


@pytest.mark.parametrize(("adaptive", "word"), [(0.9, HELD), (0.5, NOT_HELD), (0.7, OPEN)])
def test_the_word_follows_the_interval(adaptive, word):
    plan = design(("adaptive", "adaptive", "fixed"))
    (row,) = judged(plan, {"fixed": 0.7, "adaptive": adaptive}, spread=0.02, noise=0.02)
    assert row["outcome"] == word
    assert word in row["sentence"]
    assert row["value"] == pytest.approx(adaptive / 0.7, rel=0.05)
    assert "R of adaptive over that of fixed" in row["sentence"]
    assert "4 families" in row["sentence"]


_PEERS = {
    **MODES,
    "hf_generate": {"drafter": "none", "runtime": "hf", "baseline": "hf_generate"},
    "hf_assisted": {**_FOLDED, "runtime": "hf", "baseline": "hf_generate"},
}


@pytest.mark.parametrize(("peer", "words"), [(2.0, [HELD, HELD]), (1.0, [NOT_HELD, OPEN])])
def test_times_are_compared_across_baselines(peer, words):
    """Plain modes too: no baseline of either takes part."""
    plan = design(
        ("peer_plain", "hf_generate", "ar"), ("peer_assisted", "hf_assisted", "fixed"), modes=_PEERS
    )
    tables = study_tables(plan, ratio=lambda cell: 0.8, spread=0.0)
    # Of a tidy study, all of whose plain decoding takes the same: the peer's times stretched.
    rows = tables.rows
    theirs = rows["runtime"].eq("hf")
    rows.loc[theirs, "round_s"] = rows.loc[theirs, "round_s"].map(lambda s: [peer * x for x in s])
    plain, assisted = judge_claims(rows, tables.ratios, tables.gates, plan).to_dict("records")
    assert plain["value"] == pytest.approx(peer, rel=0.1)
    assert assisted["value"] == pytest.approx(peer, rel=0.1)
    assert [plain["outcome"], assisted["outcome"]] == words
    assert "time a token of hf_generate over that of ar" in plain["sentence"]
    assert "a claim of this project" in plain["sentence"]


def test_families_that_failed_a_gate_are_named():
    plan = design(("adaptive", "adaptive", "fixed"))
    failed = {("2048", family, "adaptive"): "steady" for family in FAMILIES[:4]}
    (row,) = judged(plan, {"adaptive": 0.9, "fixed": 0.7}, failed=failed)
    assert not row["gated"]
    assert row["sentence"].endswith("families that failed a gate included")


@pytest.mark.parametrize(
    ("side", "low", "high", "word"),
    [
        ("above", 1.01, 1.2, HELD), ("above", 0.8, 0.99, NOT_HELD), ("above", 0.9, 1.1, OPEN),
        ("below", 0.8, 0.99, HELD), ("below", 1.01, 1.2, NOT_HELD), ("below", 0.9, 1.1, OPEN),
        ("equal", 0.97, 1.04, HELD), ("equal", 1.06, 1.2, NOT_HELD), ("equal", 0.5, 0.94, NOT_HELD),
        ("equal", 0.9, 1.0, OPEN), ("above", math.nan, math.nan, OPEN),
        # Counts can be equal in all families: that is neither above nor below.
        ("above", 1.0, 1.0, OPEN), ("below", 1.0, 1.0, OPEN), ("equal", 1.0, 1.0, HELD),
    ],
)  # fmt: skip
def test_every_side_has_its_words(side, low, high, word):
    claim = dataclasses.replace(claims()["adaptive"], side=side, bound=1.0)
    start, end = claimed_range(claim, Inference())
    assert outcome({"low": low, "high": high, "holds_from": start, "holds_to": end}) == word


def test_every_claim_of_the_file_can_be_judged_and_says_something():
    for name, claim in claims().items():
        assert claim.side in ("above", "below", "equal")
        assert claim.bound > 0
        (row,) = judged(design((name, *PAIRS[name]), modes=OTHERS), {"adaptive": 0.9, "fixed": 0.7})
        assert row["sentence"].startswith(claim.statement[0].upper())
        assert row["outcome"] in row["sentence"]
        assert row["families"] or "nothing was measured" in row["sentence"]
        if claim.value is not None:
            assert row["claimed"] == claim.value


def test_the_formula_is_held_against_what_was_measured():
    plan = design(("formula", "fixed", "ar"))
    (row,) = judged(plan, {"fixed": 0.7})
    assert row["value"] > 0
    assert "R of fixed over alpha / (c + 1)" in row["sentence"]


def test_nothing_measured_is_open():
    plan = design(("kept_cache", "fixed", "recomputed"), modes=OTHERS)
    plan = plan.model_copy(update={"instrumented": [0, 0]})
    (row,) = judged(plan, {})
    assert row["outcome"] == OPEN
    assert "nothing was measured" in row["sentence"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ([("adaptiv", "adaptive", "fixed")], "unknown claim 'adaptiv'; there is longer_blocks"),
        ([("adaptive", "nobody", "fixed")], "unknown mode 'nobody'; there is ar, fixed, adaptive"),
        ([("adaptive", "ar", "fixed")], "is about 'ar', a plain mode"),
        ([("adaptive", "fixed", "fixed")], "compares 'fixed' with itself: name another mode"),
        ([("adaptive", "adaptive", "fixed")] * 2, "on 'adaptive' against 'fixed' is listed twice"),
        ([("window_acceptance", "fixed", "ar")], "acceptance, which the plain mode 'ar' has none"),
        ([("formula", "fixed", "adaptive")], "about 'fixed' and its baseline: write against: ar"),
        ([("adaptive", "adaptive", "first_plain")], "'first_plain' is not measured on all prompts"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_judged_is_one_sentence(asked, says):
    with pytest.raises(DesignError, match=re.escape(says)):
        design(*asked, modes={**MODES, "first_plain": {**_FOLDED, "only": {"families": 1}}})


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "formula"])
def test_a_claim_about_other_modes_is_refused(name):
    mode, against = PAIRS[name]
    if claims()[name].of_plain_modes or name in ("longer_blocks", "kept_cache", "temperature"):
        mode, against = against, mode
    else:
        mode = "fixed" if against != "fixed" else "recomputed"
    with pytest.raises(DesignError, match=rf"claim '{name}' needs .*, which '.*' is not"):
        design((name, mode, against), modes=OTHERS)


def test_claims_of_graphs_and_of_drafts_are_not_about_plain_eager_modes():
    for name in ("peer_assisted", "peer_static_graph", "peer_assisted_graph"):
        with pytest.raises(DesignError, match=rf"claim '{name}' needs"):
            design((name, "hf_generate", "ar"), modes=OTHERS)


def test_the_gates_of_a_plain_mode_are_asked():
    plan = design(("peer_plain", "hf_generate", "ar"), modes=_PEERS)
    failed = {("2048", family, "hf_generate"): "steady" for family in FAMILIES[:4]}
    for gates, end in ((failed, ", families that failed a gate included"), ({}, "4 families")):
        (row,) = judged(plan, {}, failed=gates)
        assert row["sentence"].endswith(end)


def test_few_families_that_all_passed_are_not_said_to_have_failed():
    plan = design(("adaptive", "adaptive", "fixed"), families=FAMILIES[:3])
    (row,) = judged(plan, {"adaptive": 0.9, "fixed": 0.7})
    assert row["sentence"].endswith("no interval, 3 families")


def test_families_in_which_nothing_was_accepted_are_counted():
    plan = design(("window_acceptance", "windowed", "fixed"), modes=OTHERS)
    tables = study_tables(plan, ratio=lambda cell: 0.8)
    ratios = tables.ratios

    def barren(*families):
        none = ratios["family"].isin(families) & ratios["mode"].eq("windowed")
        altered = ratios.assign(acceptance=ratios["acceptance"].where(~none, 0.0))
        return judge_claims(tables.rows, altered, tables.gates, plan)["sentence"].iloc[0]

    assert "3 families (1 more left out, where nothing was accepted)" in barren(FAMILIES[0])
    assert barren(*FAMILIES[:4]).endswith("nothing was accepted")
    assert "left out" not in barren()


def test_times_of_two_machines_are_no_ratio():
    plan = design(("peer_static_graph", "hf_static", "ar_graph"), modes=OTHERS)
    tables = study_tables(plan, ratio=lambda cell: 0.8)

    def moved(column, family, *replicates):
        """Plain decoding by graphs was measured again, on another card or after a boot."""
        rows = tables.rows
        again = rows["mode"].eq("ar_graph") & rows["replicate"].isin(replicates)
        again &= rows["family"].isin(family)
        rows = rows.assign(**{column: rows[column].where(~again, "another")})
        return judge_claims(rows, tables.ratios, tables.gates, plan).iloc[0]

    whole = moved("boot_id", [])
    assert whole["families"] == 4
    for column in ("boot_id", "device_uuid"):
        # One block of two is left, and says the same in these rows.
        half = moved(column, FAMILIES[:1], 0)
        assert half["families"] == 4
        assert "left out" not in half["sentence"]
        fewer = moved(column, FAMILIES[:1], 0, 1)
        assert fewer["families"] == 3
        assert "(1 more left out, measured on two machines)" in fewer["sentence"]
        none = moved(column, FAMILIES[:4], 0, 1)
        assert (none["outcome"], math.isnan(none["value"])) == (OPEN, True)
        assert none["sentence"].endswith("all families are left out, measured on two machines")


@pytest.mark.parametrize(
    ("claim", "column", "runs"),
    [("first_plain", "target_prefill_s", [False, True]), ("kept_cache", "verify_s", [True])],
)
def test_every_claim_about_times_divides_those_of_one_machine(claim, column, runs):
    """The block that was measured again on a machine ten times as fast says nothing."""
    plan = design((claim, *PAIRS[claim]), modes=OTHERS, instrumented=[1, 1])
    tables = study_tables(plan, ratio=lambda cell: 0.8, spread=0.0, noise=0.0)
    rows = tables.rows
    # Twice what the other takes, in every block.
    own = rows["mode"].eq(PAIRS[claim][0]) & rows["instrumented"].isin(runs)
    rows.loc[own, column] *= 2.0

    def value():
        return judge_claims(rows, tables.ratios, tables.gates, plan)["value"].iloc[0]

    before = value()
    assert 1.4 < before < 2.1
    rows.loc[own & rows["replicate"].eq(0), column] /= 10.0
    assert value() < 0.8 * before
    cell = rows["mode"].eq(PAIRS[claim][0]) & rows["replicate"].eq(0)
    rows.loc[cell, "boot_id"] = "another"
    assert value() == pytest.approx(before, rel=0.02)


def test_only_blocks_that_the_claim_reads_are_asked_for_their_machine():
    """Phases of block 0 alone, which two machines measured; block 1 has nothing to say of them."""
    plan = design(("kept_cache", *PAIRS["kept_cache"]), modes=OTHERS, instrumented=[1, 0])
    tables = study_tables(plan, ratio=lambda cell: 0.8)
    # The mode's own baseline moved with it.
    cell = tables.rows["mode"].isin(["fixed", "ar"]) & tables.rows["replicate"].eq(0)
    rows = tables.rows.assign(boot_id=tables.rows["boot_id"].where(~cell, "another"))
    (row,) = judge_claims(rows, tables.ratios, tables.gates, plan).to_dict("records")
    assert (row["families"], row["left_out"]) == (0, 4)
    assert row["sentence"].endswith("all families are left out, measured on two machines")


def test_a_cell_that_failed_is_not_called_one_of_another_machine():
    plan = design(("peer_static_graph", "hf_static", "ar_graph"), modes=OTHERS)

    def alter(row):
        on_gpu = {**row, "device_uuid": "GPU-1"}
        if (row["mode"], row["family"]) == ("hf_static", FAMILIES[0]):
            # Its row names the boot and no card.
            return failed_cell(row, "out_of_memory", "CUDA out of memory")
        return on_gpu

    tables = study_tables(plan, ratio=lambda cell: 0.8, alter=alter)
    (row,) = judge_claims(tables.rows, tables.ratios, tables.gates, plan).to_dict("records")
    assert (row["families"], row["left_out"]) == (3, 0)
    assert "two machines" not in row["sentence"]


def test_the_formula_is_of_the_blocks_that_have_phases():
    """alpha / (c + 1) is exact where verification costs a step, and R is of the same block."""
    plan = design(("formula", "fixed", "ar"), instrumented=[1, 0])
    tables = study_tables(plan, ratio=lambda cell: 0.7, spread=0.0, noise=0.0)
    rows = tables.rows

    def value():
        return judge_claims(rows, tables.ratios, tables.gates, plan)["value"].iloc[0]

    before = value()
    # The other block's R says nothing of what the instrumented block's rounds cost.
    slow = rows["mode"].eq("fixed") & rows["replicate"].eq(1)
    rows.loc[slow, "round_s"] = rows.loc[slow, "round_s"].map(lambda s: [1.5 * x for x in s])
    assert value() == pytest.approx(before, rel=1e-9)
    phases = phase_table(rows, plan).query("mode == 'fixed'")
    said = phases["committed"] / (phases["draft_s"] / phases["step_s"] + 1)
    logs = phases["log_r"].astype(float) - said.astype(float).map(math.log)
    assert before == pytest.approx(math.exp(logs.mean()))


@pytest.mark.parametrize("against", ["graph", "ar_graph", "ar"])
def test_r_over_r_is_of_two_modes_with_plain_decoding_alike(against):
    """R of one runtime over R of another is not which of the two is faster."""
    if against == "ar":
        assert design(("adaptive", "adaptive", "ar"), modes=OTHERS)
        return
    wanted = "different runtime" if against == "graph" else "write against: ar$"
    with pytest.raises(DesignError, match=wanted):
        design(("adaptive", "adaptive", against), modes=OTHERS)


def test_a_claim_about_phases_needs_runs_that_time_them():
    for name in ("formula", "kept_cache"):
        with pytest.raises(DesignError, match="instrumented asks for no runs"):
            design((name, "fixed", "ar"), instrumented=[0, 0])


# --- when tokens arrive -------------------------------------------------------------------


def test_a_plain_first_round_moves_the_draft_s_prefill_behind_the_first_token():
    tables = study_tables(design(), ratio=0.7)
    rows = tables.rows
    rows["target_prefill_s"], rows["draft_prefill_s"] = 2.0, 0.5
    rows.loc[rows["mode"] == "ar", "draft_prefill_s"] = math.nan
    times = [[0.1, 0.1, 0.4, 1.0]] * len(rows)
    rows["token_arrival_s"] = times
    found = arrivals(rows)
    place = ("2048", FAMILIES[0])
    assert found[*place, "ar"] == pytest.approx(
        {"first_token_s": 2.1, "gap_p50_s": 0.3, "gap_p95_s": 0.57, "longest_gap_s": 0.6}
    )
    assert found[*place, "fixed"]["first_token_s"] == pytest.approx(2.6)
    assert found[*place, "first_plain"]["first_token_s"] == pytest.approx(2.1)
    assert found[*place, "first_plain"]["longest_gap_s"] == pytest.approx(0.6)
    assert latency(rows)["2048", "ar"]["first_token_s"] == pytest.approx(2.1)
