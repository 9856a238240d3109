"""The workflow on a tiny pair: one real run, then every kind of rerun that the README promises."""

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from engine.measure.rows import read_rows, write_rows
from tests.workspace import ROOT, Workspace

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A workspace in which everything has been built once."""
    workspace = Workspace(tmp_path_factory.mktemp("done"))
    workspace.run = workspace.snakemake("--verbose")
    return workspace


def test_snakemake_sleeps_while_a_cell_is_measured(done):
    looks = done.run.stderr.count("Ready jobs:")
    ends = done.run.stderr.count("Finished jobid:")
    assert 0 < looks <= ends + 1


def test_the_run_leaves_every_product(done):
    for cell in done.cells:
        rows = read_rows(cell)
        assert set(rows["status"].to_pylist()) == {"ok"}
    report = done.root / "reports" / "tiny" / "report.html"
    assert "A tiny random pair" in report.read_text(encoding="utf-8")
    for name in ("confirmatory.svg", "confirmatory-wide.svg", "confirmatory.png", "acceptance.svg"):
        assert (report.parent / "figures" / name).stat().st_size > 1000
    verdict = done.verdict()
    # One family: no inference, and it says so instead of forcing a word.
    assert {v["verdict"] for v in verdict["verdicts"]} == {"NOT JUDGED"}
    assert verdict["synthetic"] is True


def test_tokens_of_both_arms_are_equal(done):
    tokens = pq.read_table(done.root / "results" / "tiny" / "tokens.parquet")
    assert set(tokens["outcome"].to_pylist()) == {"equal"}


def test_the_prompt_has_exactly_the_asked_length(done):
    for cell in done.design.cells():
        rows = read_rows(done.root / cell.path)
        assert set(rows["prompt_tokens"].to_pylist()) == {int(cell.context) - 8}
        assert set(rows["new_tokens"].to_pylist()) == {8}


def test_cells_ran_in_the_planned_order(done):
    assert_planned_order(done)


def assert_planned_order(workspace):
    rows = [read_rows(path).slice(0, 1).to_pylist()[0] for path in workspace.cells]
    starts = [row["cell_monotonic_start"] for row in rows]
    ends = [row["cell_monotonic_end"] for row in rows]
    assert starts == sorted(starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert len({row["pid"] for row in rows}) == len(rows)


def test_a_second_run_has_nothing_to_do(done):
    before = done.times()
    printed = done.snakemake()
    assert "Nothing to be done" in printed.stdout + printed.stderr
    assert done.times() == before


def test_touching_every_file_reruns_nothing(done):
    for path in (*(done.root / "engine").rglob("*"), *(done.root / "config").rglob("*")):
        if path.is_file():
            os.utime(path)
    assert done.planned() == {}


def test_switching_a_branch_and_back_reruns_nothing(done):
    def git(*words):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
        subprocess.run(command, cwd=done.root, check=True, capture_output=True)

    loop = done.root / "engine" / "decoding" / "loop.py"
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    git("checkout", "-qb", "other")
    loop.write_text(loop.read_text(encoding="utf-8") + "# other\n", encoding="utf-8")
    git("commit", "-qam", "other")
    git("checkout", "-q", "-")
    assert done.planned() == {}


@pytest.mark.parametrize(
    ("path", "cells"),
    [
        ("engine/figures/style.py", 0),
        ("engine/analysis/speedup.py", 0),
        ("engine/__main__.py", 0),
        ("engine/decoding/loop.py", 8),
        ("engine/models/attention.py", 8),
        ("engine/decoding/drafters/model.py", 4),
    ],
)
def test_an_edit_measures_again_what_executes_it(done, path, cells):
    file = done.root / path
    before = file.read_bytes()
    try:
        file.write_bytes(before + b"\n# edited\n")
        assert done.planned().get("time_cell", 0) == cells
    finally:
        file.write_bytes(before)
    assert done.planned() == {}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({"gates": {"drift": 0.2}}, 0),
        ({"families": ["news", "python"]}, 8),
        ({"contexts": [512, 1024, 8192]}, 4),
        ({"warmup": 2}, 8),
        ({"cpu_threads": 2}, 8),
        ({"new_tokens": 9}, 8),
    ],
)
def test_a_changed_design_measures_what_it_changes(done, changes, cells):
    done.write_design(**changes)
    try:
        planned = done.planned()
        assert planned.get("time_cell", 0) == cells
        assert planned["freeze_design"] == planned["check_timing"] == 1
    finally:
        done.write_design()
    assert done.planned() == {}


def test_other_models_measure_everything_again(done):
    target, _draft = done.pair
    done.pair = target, target
    try:
        done.write_design()
        assert done.planned()["time_cell"] == 8
    finally:
        done.pair = target, _draft
        done.write_design()


def test_a_new_drafter_file_measures_nothing_again(done):
    file = done.root / "engine" / "decoding" / "drafters" / "novel.py"
    file.write_text("class Drafter: ...\n", encoding="utf-8")
    try:
        assert done.planned() == {}
    finally:
        file.unlink()


def test_a_deleted_cell_is_measured_alone(done):
    victim = done.cells[-1]
    before = done.times()
    victim.unlink()
    assert done.planned()["time_cell"] == 1
    done.snakemake()
    after = done.times()
    assert {path for path in after if after[path] != before[path]} == {victim}


def test_r_measures_one_cell_of_8k_again(done):
    cell = next(c for c in done.design.cells() if c.context == "8192" and c.mode == "spec")
    before = done.times()
    done.snakemake("-R", cell.path)
    after = done.times()
    assert {path for path in after if after[path] != before[path]} == {done.root / cell.path}
    # A lone cell is no honest block: the gate says so and gives the command that repairs it.
    gates = pq.read_table(done.root / "results" / "tiny" / "gates.parquet").to_pandas()
    failed = gates[(gates.gate == "ordered") & gates.applicable & ~gates.passed]
    texts = failed[(failed.context == "8192") & (failed["mode"] == "spec")]["text"]
    assert any("partial block" in text and "rm -f" in text for text in texts)


def test_the_block_command_measures_the_block_again(done):
    block = [c for c in done.design.cells() if c.context == "8192" and c.replicate == 0]
    before = done.times()
    for cell in block:
        (done.root / cell.path).unlink()
    done.snakemake()
    after = done.times()
    changed = {path for path in after if after[path] != before[path]}
    assert changed == {done.root / cell.path for cell in block}


def test_all_failed_cells_are_listed_and_measured_again(done):
    failed = [done.cells[1], done.cells[6]]
    for path in failed:
        row = read_rows(path).to_pylist()[0]
        write_rows([{**row, "status": "crashed", "error": "planted"}], path)
    listed = done.engine("list-failed", "--design", "results/tiny/design.json")
    assert [done.root / line for line in listed.stdout.split()] == failed
    before = done.times()
    done.snakemake("-R", *listed.stdout.split())
    after = done.times()
    assert {path for path in after if after[path] != before[path]} == set(failed)
    assert done.engine("list-failed", "--design", "results/tiny/design.json").stdout == ""


def test_a_truncated_file_costs_its_cell_alone(done):
    victim = done.cells[3]
    victim.write_bytes(victim.read_bytes()[:200])
    broken = done.snakemake("-R", "check_timing", check=False)
    assert broken.returncode != 0
    printed = broken.stdout + broken.stderr
    assert "cannot be read" in printed
    assert "Traceback" not in printed
    before = done.times()
    done.snakemake()
    after = done.times()
    assert {path for path in after if after[path] != before.get(path)} == {victim}


def test_a_failed_command_line_override_is_named_and_a_good_one_is_listed(done):
    bad = done.snakemake("-n", "--config", "new_tokens=many", check=False)
    assert bad.returncode != 0
    assert "new_tokens" in bad.stdout + bad.stderr
    done.snakemake("--config", "title=Another title")
    assert done.verdict()["overrides"] == ["title=Another title"]
    assert done.verdict()["changes_after_freeze"]
    done.snakemake()


def test_results_kept_without_metadata_are_adopted_and_a_stale_row_is_caught(done):
    stale = done.cells[0]
    rows = read_rows(stale).to_pylist()
    write_rows([{**row, "engine_sha256": "0" * 64} for row in rows], stale)
    subprocess.run(["rm", "-rf", ".snakemake"], cwd=done.root, check=True)
    done.snakemake("--touch")
    assert done.planned() == {}
    done.snakemake("-R", "check_timing")
    gates = pq.read_table(done.root / "results" / "tiny" / "gates.parquet").to_pandas()
    caught = gates[(gates.gate == "complete") & gates.applicable & ~gates.passed]
    assert any("engine_sha256" in text for text in caught["text"])
    write_rows(rows, stale)
    done.snakemake("-R", "check_timing")


@pytest.mark.parametrize("words", [["--dag"], ["--rulegraph", "mermaid-js"], ["--filegraph"]])
def test_graphs_are_printed_clean(done, words):
    printed = done.snakemake(*words, "-F").stdout
    starts = ("digraph", "---", "flowchart", "graph")
    assert printed.lstrip().startswith(starts), printed[:200]
    assert "time_cell" in printed


def test_verdict_strict_fails_when_an_inference_is_missing(done):
    result = done.snakemake("verdict_strict", check=False)
    assert result.returncode != 0
    assert "is not judged" in result.stdout + result.stderr


def test_order_holds_with_more_cores(tmp_path):
    workspace = Workspace(tmp_path, contexts=[256, 512])
    workspace.snakemake(cores=4)
    assert_planned_order(workspace)


def test_paper_plans_192_jobs_and_480_runs():
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--configfile", "config/paper.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in result.stdout.splitlines() if line.startswith("time_cell"))
    assert line.split() == ["time_cell", "192"]
    assert "192 timing jobs, 480 measured runs" in result.stderr
