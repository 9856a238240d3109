"""Policies, look-up, windows, trimmed heads, peers: a real run on a tiny pair, to the report."""

import json

import pyarrow.parquet as pq
import pytest

from engine.measure.rows import read_rows
from tests.workspace import Workspace

pytestmark = pytest.mark.timeout(600)

_AR = {"runtime": "eager", "numerics": "fast", "baseline": "ar"}
_FOLDED = {"drafter": "model", "k": 4, "round": "folded", "bonus": True, **_AR}
MODES = {
    "ar": {"drafter": "none", **_AR},
    "fixed": _FOLDED,
    "adaptive": {**_FOLDED, "policy": "adaptive"},
    "first_plain": {**_FOLDED, "round": "repair", "bonus": False, "policy": "first_plain"},
    "guarded": {**_FOLDED, "policy": "guarded"},
    "never": {**_FOLDED, "acceptance": "none"},
    "small": {
        **_FOLDED,
        "drafter": "hybrid",
        "policy": "confidence",
        "threshold": 0.2,
        "draft_window": 16,
        "draft_vocabulary": 300,
    },
    "recomputed": {**_FOLDED, "target_cache": "recomputed"},
    "hf_generate": {"drafter": "none", "runtime": "hf", "baseline": "hf_generate"},
    "hf_assisted": {**_FOLDED, "runtime": "hf", "baseline": "hf_generate"},
}
CLAIMS = [
    {"claim": "adaptive", "mode": "adaptive", "against": "fixed"},
    {"claim": "kept_cache", "mode": "fixed", "against": "recomputed"},
    {"claim": "first_plain", "mode": "first_plain", "against": "fixed"},
    {"claim": "formula", "mode": "fixed", "against": "ar"},
    {"claim": "peer_plain", "mode": "hf_generate", "against": "ar"},
    {"claim": "peer_assisted", "mode": "hf_assisted", "against": "fixed"},
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    workspace = Workspace(
        tmp_path_factory.mktemp("policies"),
        contexts=[256],
        families=["news"],
        replicates=[1],
        new_tokens=16,
        modes=MODES,
        claims=CLAIMS,
    )
    ranking = "\n".join(map(str, range(300)))
    (workspace.pair[1] / "token-ranking.txt").write_text(ranking, encoding="utf-8")
    workspace.run = workspace.snakemake()
    return workspace


def rows_of(workspace, mode):
    return read_rows(workspace.root / f"results/tiny/timing/256/news/{mode}/r0.parquet").to_pylist()


def test_every_mode_commits_the_baseline_s_tokens(measured):
    tokens = rows_of(measured, "ar")[-1]["tokens"]
    for mode in MODES:
        for row in rows_of(measured, mode):
            assert row["status"] == "ok", row["error"]
            if not row["warmup"]:
                assert row["tokens"] == tokens, mode
    assert rows_of(measured, "first_plain")[-1]["round_k"][0] == 0
    assert set(rows_of(measured, "never")[-1]["round_m"]) == {0}
    small = rows_of(measured, "small")[-1]
    assert (small["draft_vocabulary"], small["draft_window"]) == (300, 16)
    assert (small["policy"], small["threshold"]) == ("confidence", 0.2)


def test_the_guard_s_runs_are_compared_as_wholes(measured):
    entries = {entry["mode"]: entry for entry in measured.verdict()["verdicts"]}
    assert entries["guarded"]["r_all"] > 0
    rows = pq.read_table(measured.root / "results/tiny/rows.parquet").to_pandas()
    timed = rows[(rows["mode"] == "guarded") & ~rows["warmup"]]
    assert all(len(seconds) == 1 for seconds in timed["round_s"])
    assert entries["fixed"]["latency"]["first_token_s"] > 0


def test_each_claim_is_judged_and_told(measured):
    claims = pq.read_table(measured.root / "results/tiny/claims.parquet").to_pandas()
    assert claims["claim"].tolist() == [claim["claim"] for claim in CLAIMS]
    assert (claims["families"] == 1).all()
    told = json.loads((measured.root / "reports/tiny/figures/sweep.json").read_text())
    page = (measured.root / "reports/tiny/report.html").read_text(encoding="utf-8")
    for sentence in claims["sentence"]:
        assert "cannot be told" in sentence
        assert sentence in told["message"]
    assert "What another source claims" in page
    assert "When tokens arrive" in page


def test_another_ranking_measures_its_mode_again_and_no_other(measured):
    ranking = "\n".join(map(str, reversed(range(300))))
    (measured.pair[1] / "token-ranking.txt").write_text(ranking, encoding="utf-8")
    assert measured.planned()["time_cell"] == 1


def test_a_draft_without_a_ranking_is_one_sentence_before_any_cell(measured, tmp_path):
    (measured.pair[1] / "token-ranking.txt").unlink()
    run = measured.snakemake("results/tiny/inputs.json", "-F", check=False)
    assert run.returncode
    assert "rank-tokens" in run.stdout + run.stderr
