"""What goes wrong in the middle of a run costs as little as it can, and is named."""

import fcntl
import itertools
import os
import signal
import time

import pytest

from engine.measure.rows import read_rows
from tests.workspace import Workspace, kill_group

pytestmark = pytest.mark.timeout(600)

_MODE = {"runtime": "eager", "numerics": "fast", "baseline": "ar"}
_PLANTED = {
    "crashing": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "raising": "raise ValueError('planted <b>fault</b>')",
    "hungry": "import torch; torch.empty(10**15)",
    "sleeping": "import time; time.sleep(3600)",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A finished run of a design in which each of four modes fails in its own way."""
    modes = {"ar": {"drafter": "none", **_MODE}}
    modes |= {n: {"drafter": n, "k": 2, "round": "folded", **_MODE} for n in _PLANTED}
    workspace = Workspace(tmp_path_factory.mktemp("faulty"), contexts=[512], time_limit_s=8)
    for name, line in _PLANTED.items():
        path = workspace.root / "engine" / "decoding" / "drafters" / f"{name}.py"
        source = f"class Drafter:\n    def __init__(self, resources):\n        {line}\n"
        path.write_text(source, encoding="utf-8")
    workspace.write_design(contexts=[512], replicates=[1], time_limit_s=8, modes=modes)
    # The drafters are planted in the workspace, so its design is read there and not here.
    workspace.run = workspace.snakemake()
    return workspace


def rows_of(workspace, mode):
    path = workspace.root / f"results/tiny/timing/512/news/{mode}/r0.parquet"
    return read_rows(path).to_pylist()


@pytest.mark.parametrize(
    ("mode", "status", "words"),
    [
        ("crashing", "crashed", "SIGSEGV"),
        ("raising", "crashed", "planted"),
        ("hungry", "out_of_memory", "memory"),
        ("sleeping", "timed_out", "time_limit_s of 8 s"),
    ],
)
def test_a_failed_cell_is_one_row_with_its_status(faulty, mode, status, words):
    (row,) = rows_of(faulty, mode)
    assert row["status"] == status
    assert words in row["error"]


def test_the_report_renders_and_names_the_failed_cells(faulty):
    html = (faulty.root / "reports/tiny/report.html").read_text(encoding="utf-8")
    for mode in _PLANTED:
        assert mode in html
    assert "&lt;b&gt;fault&lt;/b&gt;" in html
    assert "<b>fault</b>" not in html


def test_a_measuring_process_that_is_killed_becomes_a_row(tmp_path):
    workspace = Workspace(tmp_path, contexts=[8192], replicates=[1], new_tokens=200)
    run = workspace.start("results/tiny/rows.parquet")
    os.kill(workspace.wait_for_measurement(), signal.SIGKILL)
    assert run.wait(timeout=240) == 0
    statuses = [read_rows(path).to_pylist()[0] for path in workspace.cells]
    killed = [row for row in statuses if row["status"] != "ok"]
    assert len(killed) == 1
    assert "SIGKILL" in killed[0]["error"]


def test_kill_9_of_snakemake_leaves_no_orphan_and_keeps_finished_cells(tmp_path):
    workspace = Workspace(tmp_path, contexts=[512, 8192], replicates=[1])
    run = workspace.start()
    first = workspace.cells[0]
    deadline = time.monotonic() + 120
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    workspace.wait_for_measurement()
    kill_group(run)
    deadline = time.monotonic() + 10
    while workspace.measuring() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workspace.measuring() == []
    finished = workspace.times()
    assert first in finished
    locked = workspace.snakemake(check=False)
    assert locked.returncode != 0
    assert "lock" in (locked.stdout + locked.stderr).lower()
    workspace.snakemake("--unlock")
    workspace.snakemake()
    after = workspace.times()
    assert {path: after[path] for path in finished} == finished
    assert all(set(read_rows(path)["status"].to_pylist()) == {"ok"} for path in workspace.cells)


def test_a_cell_waits_while_the_machine_is_held(tmp_path):
    workspace = Workspace(tmp_path, contexts=[512], replicates=[1])
    workspace.snakemake("results/tiny/inputs.json")
    held = os.open(workspace.environment["SPECSCALE_LOCK_FILE"], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    run = workspace.start("results/tiny/rows.parquet")
    try:
        log = workspace.root / "logs/tiny/time_cell/512/news/ar/r0.log"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if log.exists() and "another measurement runs" in log.read_text(encoding="utf-8"):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("the cell did not say that it waits")
        assert workspace.measuring() == []
        assert workspace.times() == {}
    finally:
        os.close(held)
    assert run.wait(timeout=240) == 0
    assert len(workspace.times()) == 2


def test_two_clones_wait_for_each_other(tmp_path):
    first = Workspace(tmp_path / "one", contexts=[512], replicates=[1])
    second = Workspace(tmp_path / "two", pair=first.pair, contexts=[512], replicates=[1])
    second.environment = first.environment
    runs = [clone.start("results/tiny/rows.parquet") for clone in (first, second)]
    assert [run.wait(timeout=240) for run in runs] == [0, 0]
    spans = []
    for clone in (first, second):
        for path in clone.cells:
            row = read_rows(path).to_pylist()[0]
            spans.append((row["cell_monotonic_start"], row["cell_monotonic_end"]))
    spans.sort()
    assert len(spans) == 4
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
