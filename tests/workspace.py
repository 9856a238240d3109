"""A private copy of the repository with a tiny pair, where tests run Snakemake for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from engine.design import Design, load_design
from engine.measure.forkserver import CELL_NAME
from tests.checkpoints import tiny_pair

ROOT = Path(__file__).resolve().parents[1]
_COPIED = ("workflow", "engine", "config", "envs", "Makefile", ".gitignore")


def tiny_design(pair: tuple[Path, Path], **overrides) -> dict:
    """A design over random tiny checkpoints; marked synthetic, since the models are not real."""
    target, draft = pair
    mode = {"runtime": "eager", "numerics": "fast", "baseline": "ar"}
    return {
        "design": "tiny",
        "title": "A tiny random pair",
        "synthetic": True,
        "device": "cpu",
        "dtype": "float32",
        "cpu_threads": 1,
        "contexts": [512, 8192],
        "families": ["news"],
        "new_tokens": 8,
        "replicates": [2, 1],
        "time_limit_s": 120,
        "seed": 1,
        "models": {
            "target": {"source": "folder", "path": str(target)},
            "draft": {"source": "folder", "path": str(draft)},
        },
        "modes": {
            "ar": {"drafter": "none", **mode},
            "spec": {"drafter": "model", "k": 4, "round": "repair", **mode},
        },
        **overrides,
    }


class Workspace:
    """One clone-like folder; its name has a space and an umlaut, as users' folders do."""

    def __init__(self, folder: Path, pair: tuple[Path, Path] | None = None, **overrides):
        self.root = folder / "a clone, für Tests"
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, self.root / name, ignore=ignored)
            else:
                shutil.copy2(source, self.root / name)
        self.pair = pair or tiny_pair(folder / "pair")
        self.config = self.root / "config" / "tiny.yaml"
        self.write_design(**overrides)
        self.environment = {
            **os.environ,
            # Tests must not wait for a study that someone runs on this machine, nor disturb it.
            "SPECSCALE_LOCK_FILE": str(self.root / "Makefile"),
            "PYTHONPATH": "",
        }

    def write_design(self, **overrides) -> None:
        text = yaml.safe_dump(tiny_design(self.pair, **overrides), sort_keys=False)
        self.config.write_text(text, encoding="utf-8")

    @property
    def design(self) -> Design:
        return load_design(self.config)

    @property
    def cells(self) -> list[Path]:
        return [self.root / cell.path for cell in self.design.cells()]

    def command(self, *words: str, cores: int = 1) -> list[str]:
        head = [sys.executable, "-m", "snakemake", "--configfile", "config/tiny.yaml"]
        return [*head, "--cores", str(cores), *map(str, words)]

    def snakemake(self, *words: str, cores: int = 1, check: bool = True):
        """Run to the end; with `check`, a failure shows everything that was printed."""
        result = subprocess.run(
            self.command(*words, cores=cores),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        if check and result.returncode:
            raise AssertionError(f"{result.args}\n{result.stdout}\n{result.stderr}")
        return result

    def start(self, *words: str, cores: int = 1) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(*words, cores=cores),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def engine(self, *words: str):
        return subprocess.run(
            [sys.executable, "-m", "engine", *map(str, words)],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def planned(self, *words: str) -> dict[str, int]:
        """Jobs by rule that a dry run would start."""
        printed = self.snakemake("-n", *words).stdout
        if "Nothing to be done" in printed:
            return {}
        table = printed.split("Job stats:")[1].splitlines()[3:]
        counts = {}
        for line in table:
            if not line.strip():
                break
            rule, count = line.split()
            counts[rule] = int(count)
        return counts

    def times(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.cells if path.exists()}

    def verdict(self) -> dict:
        path = self.root / "reports" / self.design.design / "verdict.json"
        return json.loads(path.read_text(encoding="utf-8"))

    def measuring(self) -> list[int]:
        """Process ids of measuring processes that were started in this workspace."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    name = (entry / "comm").read_text(encoding="utf-8").strip()
                    here = (entry / "cwd").resolve() == self.root.resolve()
                except OSError:
                    continue
                if here and name == CELL_NAME:
                    found.append(int(entry.name))
        return found

    def wait_for_measurement(self, timeout: float = 60) -> int:
        """The process id of the next measuring process."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if found := self.measuring():
                return found[0]
            time.sleep(0.02)
        raise AssertionError("no measuring process appeared")


def kill_group(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    """End only the workflow's own process, as `kill -9` on it would."""
    os.kill(process.pid, number)
    process.wait(timeout=60)
