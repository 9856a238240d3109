"""What a cell executes is what its inputs and hashes name, no less."""

import json
import subprocess
import sys

from engine import composition
from tests.checkpoints import tiny_pair
from tests.workspace import ROOT, tiny_design

_DRAFTS = {"drafter": "model", "k": 4, "round": "folded"}
_RUN = """
import json, sys
from engine.measure import job
import torch
with torch.inference_mode():
    job.measure(json.load(sys.stdin))
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("engine.")]))
"""


def executed_by(folder, runtime):
    """The engine's files that a cell with a draft model brings into its process, and their names
    by composition.
    """
    from engine.design import parse_design
    from engine.models.fetching import fetch

    plain = {"drafter": "none", "runtime": runtime, "baseline": "ar"}
    modes = {"ar": plain, "spec": plain | {**_DRAFTS, "bonus": runtime == "hf"}}
    design = parse_design(tiny_design(tiny_pair(folder), contexts=[64], modes=modes))
    cell = design.cell("64", "news", "spec", 0)
    job = {
        "lock_held": 0.0,
        "cell": design.resolved_cell(cell),
        "target": vars(fetch(design.models.target, ROOT)),
        "draft": vars(fetch(design.models.draft, ROOT)),
        "stop_ids": [2],
        "prompt": list(range(3, 59)),
        "prompt_sha256": "0" * 64,
    }
    result = subprocess.run(
        [sys.executable, "-c", _RUN],
        cwd=ROOT,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    )
    executed = {f for f in json.loads(result.stdout.splitlines()[-1]) if f and "__init__" not in f}
    named = {*composition.core_files(), *composition.mode_files("model", runtime)}
    return executed, {str(path) for path in named}


def test_a_cell_executes_nothing_beyond_its_core_and_its_mode(tmp_path):
    executed, named = executed_by(tmp_path, "eager")
    assert executed
    assert executed <= named


def test_every_file_of_a_mode_changes_its_hash_and_no_other(tmp_path):
    plain = composition.mode_files("none", "eager")
    model = composition.mode_files("model", "eager")
    assert set(plain) < set(model)
    assert composition.files_sha256(plain) != composition.files_sha256(model)
    assert not set(model) & set(composition.core_files())


def test_the_kernels_of_a_mode_are_among_its_files():
    """Planted in the hash, not loaded here: a CPU run never reaches the compiler."""
    graph = {path.name for path in composition.mode_files("none", "graph")}
    assert {"static.py", "step.py", "step.cu", "commit.cu", "ring.cuh"} <= graph
    assert not any(path.suffix == ".cu" for path in composition.mode_files("model", "eager"))
    # The sweep that the bandwidth is held against is every plain cell's.
    assert "sweep.cu" in {path.name for path in composition.core_files()}
    assert {"step.cu", "step.py"}.isdisjoint(path.name for path in composition.core_files())
    named = {*composition.core_files(), *composition.mode_files("none", "graph")}
    assert {*(composition.ENGINE / "kernels").glob("*.cu*")} <= named


def test_a_round_of_the_graph_runtime_executes_nothing_beyond_its_files(tmp_path):
    executed, named = executed_by(tmp_path, "graph")
    assert executed <= named
    assert any(path.endswith("kernels/commit.py") for path in executed)


def test_a_peer_executes_nothing_of_ours_beyond_its_files(tmp_path):
    executed, named = executed_by(tmp_path, "hf")
    assert executed <= named
    assert any(path.endswith("models/as_transformers.py") for path in executed)
