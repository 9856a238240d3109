#!/usr/bin/env bash
# What to run once on a new GPU machine: the CUDA tests, the smoke ladder, then the mechanism phases
# of the embedded pair at 2K. Artifacts go to the folder given as $1. PYTHON names the interpreter
# (default: .venv's). Run again, it goes on where it stopped.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tests/gpu_session.sh FOLDER}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$out" results
design=results/embedded-gpu.yaml

$python - "$design" <<'EOF'
import sys

import yaml

with open("config/paper-mechanism.yaml") as mechanism, open("config/config.yaml") as embedded:
    design = yaml.safe_load(mechanism) | {"models": yaml.safe_load(embedded)["models"]}
design |= {"design": "embedded-gpu", "contexts": [2048], "warmup_tokens": 16}
design["title"] = "SmolLM2-135M-Instruct with a 2-layer draft, on a GPU"
for sweep in ("relaxed_0", "relaxed_05", "relaxed_2"):
    del design["modes"][sweep]
with open(sys.argv[1], "w") as file:
    yaml.safe_dump(design, file, sort_keys=False)
EOF

if [ ! -e "$out/tests.txt" ] && [ ! -e results/cuda-tests-passed ]; then
  $python -m pytest -p no:cacheprovider -o addopts= -q tests/test_cuda.py 2>&1 | tail -40 |
    tee "$out/tests.txt"
  touch results/cuda-tests-passed
fi
$python -m snakemake smoke --cores 4 --configfile "$design" 2>&1 | grep -E "^smoke,|rror"
$python -m snakemake --cores 4 --configfile "$design" 2>&1 |
  grep -v -E "^(Select|Execute|Finished|\[Mon|\[Tue)" | tee "$out/study.txt" | tail -50
tar czf "$out/study.tgz" results/embedded-gpu reports/embedded-gpu
