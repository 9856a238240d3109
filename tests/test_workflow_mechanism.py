"""Mechanism modes, component times, traces and the smoke ladder, by real runs on a tiny pair."""

import pyarrow.parquet as pq
import pytest

from engine.analysis.walk import walk
from engine.measure.rows import read_rows
from tests.workspace import Workspace

pytestmark = pytest.mark.timeout(600)

_EAGER = {"runtime": "eager", "numerics": "fast", "baseline": "ar"}
_ONLY = {"only": {"contexts": 1, "families": 1}}
_SPEC = {"drafter": "model", "k": 4, **_EAGER}
_FOLDED = {**_SPEC, "round": "folded", "bonus": True}
MODES = {
    "ar": {"drafter": "none", **_EAGER},
    "ar_device": {"drafter": "none", "runtime": "device", "baseline": "ar_device", **_ONLY},
    "spec": {**_SPEC, "round": "repair"},
    "phase_o": {**_SPEC, "round": "repair", "runtime": "device", "baseline": "ar_device", **_ONLY},
    "spec_folded": {**_FOLDED, **_ONLY},
    "relaxed_0": {**_SPEC, "round": "repair", "acceptance": "relaxed", "delta": 0.0, **_ONLY},
    "oracle": {**_SPEC, "round": "repair", "acceptance": "all", **_ONLY},
    "draft_free": {**_FOLDED, "drafter": "reference", "acceptance": "all", **_ONLY},
}
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def mechanism(tmp_path_factory):
    workspace = Workspace(
        tmp_path_factory.mktemp("mechanism"),
        contexts=[512, 700],
        families=["news", "json"],
        replicates=[1],
        new_tokens=NEW_TOKENS,
        modes=MODES,
        components={"contexts": 1, "families": 1, "most": 4, "repeats": 3},
    )
    workspace.run = workspace.snakemake()
    return workspace


def rows_of(workspace, mode):
    return read_rows(workspace.root / f"results/tiny/timing/512/news/{mode}/r0.parquet").to_pylist()


def test_a_mode_is_measured_on_its_part_of_the_grid_only(mechanism):
    measured = {(c.context, c.family, c.mode) for c in mechanism.design.cells()}
    assert ("700", "news", "spec") in measured
    assert ("700", "news", "spec_folded") not in measured
    assert len(measured) == 2 * 4 + 6
    assert all((mechanism.root / cell.path).exists() for cell in mechanism.design.cells())
    whole = {e["mode"] for e in mechanism.verdict()["verdicts"] if e["whole_grid"]}
    assert whole == {"spec"}


def test_a_mode_without_sense_on_a_cpu_is_listed_with_its_reason(mechanism):
    (row,) = rows_of(mechanism, "phase_o")
    assert row["status"] == "not_applicable"
    entries = [e for e in mechanism.verdict()["verdicts"] if e["mode"] == "phase_o"]
    assert [("no synchronisation" in e["not_applicable"]) for e in entries] == [True]


def test_nothing_is_held_against_a_mode_that_cannot_run(mechanism):
    results = mechanism.root / "results/tiny"
    gates = pq.read_table(results / "gates.parquet").to_pandas()
    beyond = gates[gates["mode"].isin(("ar_device", "phase_o"))]
    assert set(beyond["mode"]) == {"ar_device", "phase_o"}
    assert not beyond["applicable"].any()
    assert gates[gates["mode"].eq("spec")]["applicable"].any()
    tokens = pq.read_table(results / "tokens.parquet").to_pandas().set_index("mode")
    assert set(tokens.loc[["ar_device", "phase_o"], "outcome"]) == {"not_applicable"}
    chain = pq.read_table(results / "chain.parquet").to_pandas()
    assert "rank_within_5" in set(chain["quantity"])
    assert not chain["quantity"].str.contains("syncs").any()


def test_each_mode_does_what_its_name_says(mechanism):
    plain = rows_of(mechanism, "ar")[-1]
    draft_free, spec = rows_of(mechanism, "draft_free")[-1], rows_of(mechanism, "spec")[-1]
    assert draft_free["tokens"] == plain["tokens"]
    assert draft_free["draft_model"] is None
    assert draft_free["draft_calls"] == 0
    # One model's weights and cache less than with a draft.
    assert draft_free["weights_bytes"] == plain["weights_bytes"] < spec["weights_bytes"]
    assert draft_free["kv_bytes"] == plain["kv_bytes"] < spec["kv_bytes"]
    oracle = rows_of(mechanism, "oracle")[-1]
    assert oracle["round_m"] == [4] * (NEW_TOKENS // 4)
    relaxed = rows_of(mechanism, "relaxed_0")[-1]
    assert relaxed["delta"] == 0
    for name in ("tokens", "round_k", "round_m", "target_calls"):
        assert relaxed[name] == spec[name]


def test_the_trace_predicts_the_rounds_exactly(mechanism):
    mechanism.snakemake("results/tiny/trace.parquet")
    trace = pq.read_table(mechanism.root / "results/tiny/trace.parquet").to_pandas()
    here = trace[(trace["context"] == "512") & (trace["family"] == "news")]
    matches = here.sort_values("position")["matches"].tolist()
    assert here["token"].tolist() == rows_of(mechanism, "ar")[-1]["tokens"]
    for mode, form, bonus in (("spec", "repair", False), ("spec_folded", "folded", True)):
        row, rounds = rows_of(mechanism, mode)[-1], walk(matches, 4, form, bonus)
        assert [r.k for r in rounds] == row["round_k"]
        assert [r.m for r in rounds] == row["round_m"]


def test_components_are_measured_behind_their_blocks_and_priced(mechanism):
    mechanism.snakemake("results/tiny/predicted.parquet", "results/tiny/waterfall.parquet")
    path = mechanism.root / "results/tiny/components/512/news/ar.parquet"
    parts = pq.read_table(path).to_pandas()
    assert {(p, r) for p, r in zip(parts["part"], parts["rows"], strict=True)} == {
        ("step", 1), ("draft", 1), ("draft", 2),
        *(("verify", rows) for rows in range(1, 6)), *(("control", k) for k in range(1, 5)),
    }  # fmt: skip
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in parts["seconds"])
    predicted = pq.read_table(mechanism.root / "results/tiny/predicted.parquet").to_pandas()
    assert set(predicted["k"]) == {1, 2, 3, 4}
    waterfall = pq.read_table(mechanism.root / "results/tiny/waterfall.parquet").to_pandas()
    assert {"spec", "draft_free"} <= set(waterfall["mode"])
    assert "phase_o" not in set(waterfall["mode"])


def test_the_ladder_is_climbed_in_order(mechanism):
    printed = mechanism.snakemake("smoke")
    order = [
        line.removeprefix("smoke, ").split(":")[0]
        for line in (printed.stdout + printed.stderr).splitlines()
        if line.startswith("smoke, ")
    ]
    assert order == ["environment", "plain", "rollback", "tokens", "pair"]


def test_the_ladder_holds_the_tokens_of_peers_too(tmp_path):
    peer = {"runtime": "hf", "baseline": "hf_generate"}
    modes = {
        "ar": {"drafter": "none", **_EAGER},
        "spec": {**_SPEC, "round": "repair"},
        "hf_generate": {"drafter": "none", **peer},
        "hf_assisted": {**_FOLDED, **peer},
    }
    workspace = Workspace(tmp_path, contexts=[512], replicates=[1], modes=modes)
    printed = workspace.snakemake("smoke")
    assert "spec, hf_assisted gives the baseline's" in printed.stdout + printed.stderr


def test_the_first_broken_rung_stops_the_ladder(tmp_path):
    """Planted fault: a cache that forgets to trim."""
    workspace = Workspace(tmp_path, contexts=[512], replicates=[1])
    cache = workspace.root / "engine" / "models" / "cache.py"
    source = cache.read_text(encoding="utf-8")
    assert "        self.length = length\n" in source
    cache.write_text(
        source.replace("        self.length = length\n", "        pass\n"), encoding="utf-8"
    )
    run = workspace.snakemake("smoke", check=False)
    printed = run.stdout + run.stderr
    assert run.returncode != 0
    assert "smoke, plain:" in printed
    assert "smoke, tokens:" not in printed
    assert not (workspace.root / "results/tiny/smoke/rollback.json").exists()
