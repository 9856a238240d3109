"""A design that samples, by a real run on a tiny pair: one text a cell, and the right question."""

import html
import json

import pyarrow.parquet as pq
import pytest

from engine.measure.rows import read_rows
from tests.workspace import Workspace

pytestmark = pytest.mark.timeout(600)

WARM = {"temperature": 0.8, "top_k": 40, "repetition_penalty": 1.1}
_PLAIN = {"drafter": "none", "runtime": "eager"}
_SPEC = {"drafter": "model", "k": 3, "runtime": "eager", "baseline": "ar_warm", "sampling": WARM}
MODES = {
    "ar": {**_PLAIN, "baseline": "ar"},
    "ar_warm": {**_PLAIN, "baseline": "ar_warm", "sampling": WARM},
    "rejection": {**_SPEC, "round": "repair", "acceptance": "rejection"},
    "coupled": {**_SPEC, "round": "folded", "bonus": True, "acceptance": "coupled",
                "draft_sampling": {"temperature": 0.5}},
    "typical": {**_SPEC, "round": "folded", "acceptance": "typical", "epsilon": 0.09},
    "draft_free": {**_SPEC, "round": "folded", "drafter": "reference", "acceptance": "all"},
}  # fmt: skip


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    workspace = Workspace(
        tmp_path_factory.mktemp("sampled"),
        contexts=[512],
        families=["news", "json"],
        replicates=[2, 1],
        new_tokens=12,
        modes=MODES,
    )
    workspace.snakemake()
    return workspace


def texts_of(workspace, mode, family="news"):
    found = set()
    for replicate in (0, 1):
        path = workspace.root / f"results/tiny/timing/512/{family}/{mode}/r{replicate}.parquet"
        found |= {tuple(row["tokens"]) for row in read_rows(path).to_pylist() if not row["warmup"]}
    return found


@pytest.mark.parametrize("mode", MODES)
def test_every_run_of_a_cell_draws_the_same_text(sampled, mode):
    assert len(texts_of(sampled, mode)) == 1


def test_coupled_sampling_and_replayed_drafts_write_the_baseline_s_text(sampled):
    for family in ("news", "json"):
        assert texts_of(sampled, "coupled", family) == texts_of(sampled, "ar_warm", family)
        assert texts_of(sampled, "draft_free", family) == texts_of(sampled, "ar_warm", family)
    assert texts_of(sampled, "ar_warm") != texts_of(sampled, "ar")


def test_rows_say_how_they_were_sampled(sampled):
    path = sampled.root / "results/tiny/timing/512/news/coupled/r0.parquet"
    row = read_rows(path).to_pylist()[0]
    assert json.loads(row["sampling"])["temperature"] == 0.8
    assert json.loads(row["draft_sampling"])["temperature"] == 0.5
    assert row["epsilon"] is None


def test_the_gate_asks_each_mode_for_what_it_promises(sampled):
    tokens = pq.read_table(sampled.root / "results/tiny/tokens.parquet").to_pandas()
    here = tokens[tokens["family"] == "news"].set_index("mode")
    assert here.loc["coupled", "outcome"] == here.loc["ar_warm", "outcome"] == "equal"
    for mode in ("rejection", "typical", "draft_free"):
        assert here.loc[mode, "outcome"] == "not_applicable"
    assert "check_distribution" in here.loc["rejection", "text"]
    assert "check_distribution" not in here.loc["typical", "text"]


def test_what_is_drawn_is_held_against_the_distribution(sampled):
    found = {entry["mode"]: entry for entry in sampled.verdict()["distribution"]}
    assert set(found) == {"rejection", "coupled"}
    for entry in found.values():
        assert entry["draws"] >= 20_000
        assert entry["passed"]
    page = html.unescape((sampled.root / "reports/tiny/report.html").read_text("utf-8"))
    assert found["rejection"]["text"] in page
