"""The graph runtime and a synthetic pair, by one real run of the workflow on a CPU."""

import pyarrow.parquet as pq
import pytest

from engine.measure.rows import read_rows
from tests.tiny_models import DRAFT_SHAPE, SHAPE
from tests.workspace import Workspace

pytestmark = pytest.mark.timeout(600)

_PLAN = {
    "contexts": [96, 160],
    "acceptance": [0.6, 0.5],
    "families": 4,
    "vocabulary": 1024,
    "special": 8,
}
_EAGER = {"runtime": "eager", "baseline": "ar"}
_GRAPH = {"runtime": "graph", "numerics": "invariant", "baseline": "ar_graph"}
_MODEL = {"drafter": "model", "k": 4, "round": "folded", "bonus": True}
MODES = {
    "ar": {"drafter": "none", **_EAGER},
    "spec_folded": {**_MODEL, **_EAGER},
    "ar_graph": {"drafter": "none", **_GRAPH},
    "graph": {**_MODEL, **_GRAPH},
    "draft_free": {**_MODEL, **_GRAPH, "drafter": "reference", "acceptance": "all"},
    "relaxed": {**_MODEL, **_EAGER, "acceptance": "relaxed", "delta": 1.0},
}
NEW_TOKENS, CONTEXT = 24, 160


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    workspace = Workspace(
        tmp_path_factory.mktemp("graph"),
        contexts=[CONTEXT],
        families=["news"],
        replicates=[1],
        new_tokens=NEW_TOKENS,
        prompts={"source": "synthetic"},
        models={
            "target": {"source": "synthetic", "shape": SHAPE, "plan": _PLAN},
            "draft": {"source": "synthetic", "shape": DRAFT_SHAPE, "plan": _PLAN},
        },
        modes=MODES,
    )
    workspace.run = workspace.snakemake()
    return workspace


def rows_of(workspace, mode):
    path = f"results/tiny/timing/{CONTEXT}/news/{mode}/r0.parquet"
    return read_rows(workspace.root / path).to_pylist()


def test_whole_rounds_commit_the_tokens_and_rounds_of_the_loop(done):
    eager, own = (rows_of(done, mode)[-1] for mode in ("spec_folded", "graph"))
    for name in ("tokens", "round_k", "round_m", "target_calls", "draft_calls", "catchups"):
        assert own[name] == eager[name], name
    for mode in ("ar_graph", "draft_free"):
        assert rows_of(done, mode)[-1]["tokens"] == own["tokens"]
    tokens = pq.read_table(done.root / "results/tiny/tokens.parquet").to_pandas()
    exact = tokens[tokens["exact"]]
    assert set(exact["outcome"]) == {"equal"}


def test_rows_say_what_was_built_and_waited_for(done):
    for mode in ("ar_graph", "graph", "draft_free"):
        for row in rows_of(done, mode):
            assert row["status"] == "ok"
            assert row["kernels"] == "twins"
            assert row["graphs_captured"] == row["graph_pool_bytes"] == row["timed_captures"] == 0
            assert row["capture_s"] >= 0
            parts = [row[f"startup_{part}_s"] for part in ("import", "device", "weights")]
            assert sum(parts) == pytest.approx(row["startup_s"])
            assert min(parts) >= 0
            assert row["decode_event_s"] is None
            assert 0 < row["host_syncs"] <= row["rounds"] == len(row["round_s"])
            assert len(row["token_arrival_s"]) == row["new_tokens"]
    assert rows_of(done, "ar")[-1]["kernels"] == ""
    plain, own = rows_of(done, "ar_graph")[-1], rows_of(done, "graph")[-1]
    assert plain["draft_s"] == 0 < own["draft_s"]
    assert own["repair_s"] == 0 < own["verify_s"]
    assert rows_of(done, "draft_free")[-1]["draft_model"] is None


def test_the_pair_does_what_it_was_designed_to_do(done):
    table = pq.read_table(done.root / "results/tiny/designed.parquet").to_pandas()
    assert set(table["quantity"]) == {"agreement", "judged", "acceptance"}
    assert table["inside"].dropna().astype(bool).all()
    assert len(table) == 1 + 2 * 2
    said = (done.root / "logs/tiny/check_designed.log").read_text(encoding="utf-8")
    assert "the designed agreement lies in 1 of 1 intervals" in said


def test_it_is_called_synthetic_and_ranks_are_not_applicable(done):
    assert {row["synthetic"] for row in rows_of(done, "graph")} == {True}
    assert rows_of(done, "graph")[0]["target_model"].startswith("synthetic own shape (target")
    (row,) = rows_of(done, "relaxed")
    assert row["status"] == "not_applicable"
    assert "made up" in row["error"]
    verdict = done.verdict()
    assert verdict["synthetic"] is True
    assert {e["mode"] for e in verdict["verdicts"]} >= {"graph", "spec_folded"}
    page = (done.root / "reports/tiny/report.html").read_text(encoding="utf-8")
    assert "SYNTHETIC" in page
    assert not (done.root / "reports/tiny/figures/diagnosis.svg").exists()
