"""The record beside a reference's rows, and which figures of a design it lends.

Plain data: the workflow asks while it parses, so nothing here imports pandas or pyarrow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engine import composition
from engine.design import Design, parse_design
from engine.figures import catalogue
from engine.strict import DesignError

FOLDER = Path("results/reference")
REPORTS = Path("reports/reference")
FORMAT = 4
# Tables of the workflow that rows alone do not give; of those that a study has, a copy lies beside
# its rows, so that it can be published again.
FOUND = ("tokens", "trace", "predicted", "compared")


class ReferenceFault(ValueError):
    """A reference cannot be read or published; the text is one sentence that says what to do."""


@dataclass(frozen=True)
class Record:
    """What `publish-reference` says of the rows that it wrote beside this file.

    `measured` holds device, versions, commit, dates and modes as the rows have them, `blocks` the
    number of whole order blocks, of planned ones, and the names of those left out; `outcomes` the
    correctness gate by mode, context and family, which only the machine with the model could judge.
    `tables` are the steps from phase to phase and the published chain, as they were judged then.
    The file ends with a hash of what it says, and names those of the rows, of the verdict and of
    the tables beside (`found_sha256`): what others draw as true was not changed by hand.
    """

    path: Path
    design: Design
    measured: Mapping[str, Any]
    blocks: Mapping[str, Any]
    frozen: Mapping[str, Any]
    outcomes: Mapping[str, Mapping[str, Mapping[str, str]]]
    tables: Mapping[str, list[dict[str, Any]]]
    synthetic: bool
    rows_sha256: str
    verdict_sha256: str
    found_sha256: Mapping[str, str]
    published_at: str

    @cached_property
    def rows_path(self) -> Path:
        return self.path.with_suffix(".parquet")

    def found_path(self, name: str) -> Path:
        return self.path.with_suffix(f".{name}.parquet")

    @cached_property
    def filled(self) -> Design:
        """The design with the modes that have rows, and claims about them: what fills a figure."""
        modes = {name: self.design.modes[name] for name in self.measured["modes"]}
        claims = tuple(c for c in self.design.claims if modes.keys() >= {c.mode, c.against})
        return self.design.model_copy(update={"modes": modes, "claims": claims})

    @cached_property
    def verdict_path(self) -> Path:
        return self.path.parents[2] / REPORTS / self.design.design / "verdict.json"

    def label(self, older: Iterable[str] = ()) -> str:
        """One line for people; `older` are modes with rows of an earlier engine."""
        found = self.measured
        dates = [str(found[f"measured_{end}"] or "unknown date")[:10] for end in ("from", "to")]
        # A study that was measured in parts may be of several commits.
        commits = [name[:7] for name in (found["git_commit"] or "unknown").split(", ")]
        commit = f"{'commit' if len(commits) == 1 else 'commits'} {' and '.join(commits)}"
        if found["dirty"]:
            commit += " with uncommitted changes"
        date = " to ".join(dict.fromkeys(dates))
        parts = [found["device_name"] or self.design.device, date, commit]
        if self.synthetic:
            parts.append("synthetic")
        if self.blocks["whole"] < self.blocks["planned"]:
            parts.append(f"{self.blocks['whole']} of {self.blocks['planned']} blocks")
        older = list(older)
        if older:
            parts.append(f"measured by an earlier version of the engine{self._which(older)}")
        return f"Reference rows, design {self.design.design}: {', '.join(parts)}"

    def _which(self, modes: list[str]) -> str:
        """The modes in brackets, or the others if these are fewer; nothing for all of them."""
        others = [name for name in self.measured["modes"] if name not in modes]
        if not others:
            return ""
        if len(modes) <= len(others):
            return f" ({', '.join(modes)})"
        return f" (all modes but {', '.join(others)})"


def records(root: Path) -> tuple[list[Record], list[str]]:
    """All readable references by name, and a sentence for each that is not."""
    found, faults = [], []
    for path in sorted((root / FOLDER).glob("*.json")):
        try:
            found.append(read_record(path))
        except ReferenceFault as fault:
            faults.append(str(fault))
    return found, faults


def read_record(path: Path) -> Record:
    """The record in a JSON file; ReferenceFault if it is none that this version understands."""
    again = "publish it again (python -m engine publish-reference) or remove it"
    if not path.is_file():
        raise ReferenceFault(f"there is no reference {path}; name a record, {FOLDER}/DESIGN.json")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ReferenceFault(f"{path} has another format than this version reads: {again}")
        if data.pop("sha256") != seal(data):
            raise ReferenceFault(f"{path} was changed since it was published: {again}")
        design = parse_design(data["design"])
        record = Record(path=path, design=design, **{name: data[name] for name in _KEPT})
        # What the workflow asks of it while it parses.
        record.label(), record.filled, _fitness(design, record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ReferenceFault):
            raise
        what = f": {error}" if isinstance(error, DesignError) else ""
        raise ReferenceFault(f"the reference {path} cannot be read{what}; {again}") from None
    if not record.rows_path.is_file():
        raise ReferenceFault(f"the reference {path} has no rows beside it: {again}")
    if file_sha256(record.rows_path) != record.rows_sha256:
        raise ReferenceFault(
            f"{record.rows_path} does not hold the rows that {path.name} was written for: restore "
            f"both files together, or {again}"
        )
    return record


_KEPT = (
    "measured", "blocks", "frozen", "outcomes", "tables", "synthetic", "rows_sha256",
    "verdict_sha256", "found_sha256", "published_at",
)  # fmt: skip


def as_json(record: Record) -> dict[str, Any]:
    """What the record's file holds."""
    kept = {name: getattr(record, name) for name in _KEPT}
    said = {"format": FORMAT, "design": json.loads(record.design.to_json()), **kept}
    return {**said, "sha256": seal(said)}


def seal(said: Mapping[str, Any]) -> str:
    """Hash of a record's content, however it is laid out."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def lent(design: Design, found: Iterable[Record]) -> dict[str, Record]:
    """Figures that the design cannot draw without a GPU, by name, each with whose rows it shows.

    Only a design that plans what its device cannot run gets them: it asked. Of several references
    the one of the same target model is taken, else a real pair before a synthetic one, then the
    latest.
    """
    if not asks_for_gpu(design):
        return {}
    figures, found = {}, list(found)
    for entry in catalogue.CATALOGUE:
        able = [record for record in found if not entry.lacks(record.filled)]
        if entry.lent and entry.lacks(design) and able:
            figures[entry.name] = max(able, key=lambda record: _fitness(design, record))
    return figures


def lent_chains(design: Design, found: Iterable[Record]) -> list[Record]:
    """References whose published numbers stand beside a design that cannot measure them."""
    return [r for r in found if r.design.device == "cuda"] if asks_for_gpu(design) else []


def asks_for_gpu(design: Design) -> bool:
    """Whether the design plans a mode that runs on a GPU only, and has none."""
    runtimes = (mode.runtime for mode in design.modes.values())
    return design.device == "cpu" and any(map(composition.not_on_cpu, runtimes))


def _fitness(design: Design, record: Record) -> tuple[bool, bool, str]:
    same = record.design.models.target == design.models.target
    return same, not record.synthetic, str(record.measured["measured_to"])


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
