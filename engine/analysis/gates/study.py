"""A study as the gates see it: measured cells, and the arms that a ratio compares."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from engine.analysis.blocks import CELL, block_times, measured_runs
from engine.cells import Cell
from engine.design import Design


class MeasuredCell:
    """The rows of one planned cell; empty if it was not measured.

    `runs` are those that carry its time, `instrumented` those that carry its phases.
    """

    def __init__(self, plan: Cell, rows: pd.DataFrame):
        self.plan = plan
        self.rows = rows
        self.runs = measured_runs(rows)
        timed = rows["status"].eq("ok") & ~rows["warmup"].eq(True)
        self.instrumented = rows[timed & rows["instrumented"].eq(True)]
        self.ended_well = bool(len(rows)) and bool(rows["status"].eq("ok").all())

    @property
    def name(self) -> str:
        return f"{self.plan.mode} r{self.plan.replicate}"

    def values(self, column: str) -> list:
        """The column in plain and instrumented runs: all that end up in a table or a figure."""
        return [*self.runs[column], *self.instrumented[column]]

    @cached_property
    def round_s(self) -> np.ndarray:
        """Seconds [runs, rounds] of the plain runs; only where `Study.obstacle` is ''."""
        return np.stack([np.asarray(r, dtype=float) for r in self.runs["round_s"]])

    @cached_property
    def median_round_s(self) -> np.ndarray:
        """Seconds [rounds], each the median over the plain runs."""
        return np.median(self.round_s, axis=0)

    @cached_property
    def processes(self) -> set[tuple]:
        """The processes that wrote the rows: ids are reused, so the start is part of the name."""
        own = self.rows[["boot_id", "pid", "cell_monotonic_start"]]
        return set(own.fillna({"pid": -1}).itertuples(index=False, name=None))

    @cached_property
    def station(self) -> tuple[str, str]:
        """Where one thing is measured at a time: a boot of a machine, and on it the GPU, if any."""
        return str(self.rows["boot_id"].iloc[0]), str(self.rows["device_uuid"].iloc[0])

    @cached_property
    def start(self) -> float:
        """Start of the measuring process, monotonic seconds of its boot; `end` likewise."""
        return float(self.rows["cell_monotonic_start"].min())

    @cached_property
    def end(self) -> float:
        return float(self.rows["cell_monotonic_end"].max())


class Study:
    """All cells of a design, and what concerns more than one of them."""

    def __init__(self, rows: pd.DataFrame, design: Design, config_argument: str | None = ""):
        self.design = design
        self.config_argument = config_argument
        by_cell = dict(list(rows.groupby(CELL)))
        nothing = rows.iloc[:0]
        self.cells: dict[tuple[str, str, str, int], MeasuredCell] = {}
        for plan in design.cells():
            key = (plan.context, plan.family, plan.mode, plan.replicate)
            self.cells[key] = MeasuredCell(plan, by_cell.get(key, nothing))
        times = block_times(rows).to_dict("records")
        self._blocks = {tuple(block[name] for name in CELL): block for block in times}

    def block_s(self, cell: MeasuredCell) -> float:
        """Seconds of the cell's decode: the sum of its per-round medians."""
        return self._blocks[_key(cell)]["block_s"]

    def obstacle(self, cell: MeasuredCell) -> str:
        """Why no gate but `complete` can judge the cell; '' if they can."""
        block = self._blocks.get(_key(cell))
        if block is None or not len(cell.runs):
            return "not judged: the cell has no complete runs"
        if block["reason"]:
            return f"not judged: {block['reason']}"
        if any(np.size(r) != block["rounds"] for r in cell.instrumented["round_s"]):
            return "not judged: its instrumented runs differ in their number of rounds"
        return ""

    @cached_property
    def owners(self) -> dict[tuple, list[str]]:
        """Process -> the blocks and modes that it measured."""
        owners = defaultdict(list)
        for cell in self.cells.values():
            for process in cell.processes:
                owners[process].append(f"{cell.plan.block} {cell.plan.mode}")
        return owners

    @cached_property
    def timeline(self) -> list[MeasuredCell]:
        """Cells with rows, station by station, in the order in which they really started."""
        measured = [cell for cell in self.cells.values() if len(cell.rows)]
        return sorted(measured, key=lambda cell: (cell.station, cell.start))

    def remeasure(self, cells: Iterable[MeasuredCell]) -> str:
        """The commands that measure the blocks of these cells again, as a user types them.

        '' if there is nothing to measure, or no way to from here.
        """
        blocks = {cell.plan.block for cell in cells}
        if not blocks or self.config_argument is None:
            return ""
        paths = [c.plan.path for c in self.cells.values() if c.plan.block in blocks]
        what = "the block" if len(blocks) == 1 else "the blocks"
        run = f"snakemake --cores 1 {self.config_argument}".strip()
        return f"to measure {what} again, run `rm -f {shlex.join(paths)}` and then `{run}`"


@dataclass(frozen=True, eq=False)
class Arms:
    """A mode and its baseline on one prompt; a baseline is judged alone."""

    study: Study
    context: str
    family: str
    mode: str

    @property
    def design(self) -> Design:
        return self.study.design

    @property
    def baseline(self) -> str:
        return self.design.modes[self.mode].baseline

    @property
    def alone(self) -> bool:
        return self.mode == self.baseline

    def of(self, mode: str) -> list[MeasuredCell]:
        """The mode's cells on this prompt, one a replicate."""
        replicates = range(len(self.design.replicates))
        return [self.study.cells[self.context, self.family, mode, r] for r in replicates]

    @cached_property
    def cells(self) -> list[MeasuredCell]:
        """The cells of both arms, the baseline's first."""
        return [c for mode in dict.fromkeys([self.baseline, self.mode]) for c in self.of(mode)]

    @cached_property
    def obstacle(self) -> str:
        return next(filter(None, map(self.study.obstacle, self.cells)), "")


def _key(cell: MeasuredCell) -> tuple[str, str, str, int]:
    plan = cell.plan
    return plan.context, plan.family, plan.mode, plan.replicate
