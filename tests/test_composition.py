"""What a cell executes is what its inputs and hashes name, no less."""

import json
import subprocess
import sys

from engine import composition
from tests.checkpoints import tiny_pair
from tests.workspace import ROOT, tiny_design

_RUN = """
import json, sys
from engine.measure import job
import torch
with torch.inference_mode():
    job.measure(json.load(sys.stdin))
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("engine.")]))
"""


def test_a_cell_executes_nothing_beyond_its_core_and_its_mode(tmp_path):
    from engine.design import parse_design
    from engine.models.fetching import fetch

    design = parse_design(tiny_design(tiny_pair(tmp_path), contexts=[64]))
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
    named = {*composition.core_files(), *composition.mode_files("model", "eager")}
    assert executed
    assert executed <= {str(path) for path in named}


def test_every_file_of_a_mode_changes_its_hash_and_no_other(tmp_path):
    plain = composition.mode_files("none", "eager")
    model = composition.mode_files("model", "eager")
    assert set(plain) < set(model)
    assert composition.files_sha256(plain) != composition.files_sha256(model)
    assert not set(model) & set(composition.core_files())
