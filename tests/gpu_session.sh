#!/usr/bin/env bash
# What to run once on a new GPU machine: the CUDA tests, then a short study of the embedded pair.
# Artifacts go to the folder given as $1. PYTHON names the interpreter (default: .venv's).
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tests/gpu_session.sh FOLDER}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"

$python -m pytest -p no:cacheprovider tests/test_cuda.py tests/test_decoder.py tests/test_loop.py \
  2>&1 | tail -40 | tee "$out/tests.txt"

$python -m snakemake --cores 4 --config device=cuda dtype=bfloat16 design=embedded-gpu \
  title="SmolLM2-135M-Instruct with a 2-layer draft, on a GPU" cpu_threads=4 new_tokens=64 \
  contexts="[2048]" families="[news, fiction, python, json]" instrumented="[1, 1]" \
  2>&1 | grep -v -E "^(Select|Execute|Finished|\[)" | tee "$out/study.txt" | tail -60

$python - <<'EOF'
import pandas as pd

gates = pd.read_parquet("results/embedded-gpu/gates.parquet")
failed = gates[gates.applicable & ~gates.passed]
print(failed[["context", "family", "mode", "clause", "figure", "limit"]].to_string())
columns = ["mode", "family", "replicate", "instrumented", "decode_s", "decode_event_s", "sm_clock",
           "throttle_reasons", "foreign_processes", "startup_s", "target_prefill_s", "energy_j"]
rows = pd.read_parquet("results/embedded-gpu/rows.parquet")
print(rows[~rows.warmup][columns].to_string())
tokens = pd.read_parquet("results/embedded-gpu/tokens.parquet")
print(tokens.to_string())
EOF
tar czf "$out/study.tgz" results/embedded-gpu reports/embedded-gpu
