"""The experiment: what is measured, in which order, judged by which limits.

A design is one YAML file. Everything here is plain data: no torch, no pandas, so that
Snakemake can parse a design in well under a second.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from engine import composition
from engine.cells import Cell
from engine.claims import claims
from engine.coherence import check_coherence
from engine.limits import GATE_DEFAULTS, Gates, Inference
from engine.modes import Mode, Only
from engine.pair import Models
from engine.plain_words import sentence
from engine.strict import DesignError, Slug, Strict, slug_of
from engine.yaml_file import read_yaml

NATURAL = "natural"


class Prompts(Strict):
    """Where a cell's prompt comes from: the packaged families, a JSONL of the user's own, or the
    plan of a synthetic pair.
    """

    source: Literal["packaged", "jsonl", "synthetic"] = "packaged"
    path: str = "config/prompts"
    question: Annotated[int, Field(ge=0, lt=2**31)] = 0


class Components(Only):
    """Forwards timed by themselves, on the first so many prompts, to predict R for any k."""

    most: Annotated[int, Field(ge=1, le=64)] = 8
    repeats: Annotated[int, Field(ge=3, le=1000)] = 9


class Asked(Strict):
    """A claim of config/claims.csv that the study tests: on one mode, held against another."""

    claim: str
    mode: Slug
    against: Slug

    @field_validator("claim")
    @classmethod
    def _known_claim(cls, name: str) -> str:
        if name not in claims():
            raise ValueError(f"unknown claim {name!r}; there is {', '.join(claims())}")
        return name


class Design(Strict):
    """The whole experiment. Fields are documented for users in config/README.md."""

    design: Slug
    title: Annotated[str, Field(min_length=1, max_length=200)]
    synthetic: bool = False
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16", "float16"]
    cpu_threads: Annotated[int, Field(ge=1, le=256)]
    contexts: Annotated[
        list[Annotated[int, Field(ge=2, le=10_000_000)] | Literal["natural"]], Field(min_length=1)
    ]
    families: Annotated[list[str], Field(min_length=1)]
    new_tokens: Annotated[int, Field(ge=2, le=100_000)]
    modes: Annotated[dict[Slug, Mode], Field(min_length=1)]
    replicates: Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1)]
    warmup: Annotated[int, Field(ge=0, le=100)] = 1
    warmup_tokens: Annotated[int, Field(ge=2, le=100_000)] | None = None
    warmup_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    instrumented: list[Annotated[int, Field(ge=0, le=100)]] | None = None
    prefill_chunk: Annotated[int, Field(ge=1, le=2**20)] = 2048
    time_limit_s: Annotated[float, Field(gt=0, le=604_800)]
    memory_limit_gib: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    prompts: Prompts = Prompts()
    models: Models
    components: Components | None = None
    claims: tuple[Asked, ...] = ()
    gates: Gates
    inference: Inference = Inference()

    @model_validator(mode="before")
    @classmethod
    def _gate_defaults(cls, data: Any) -> Any:
        if isinstance(data, dict) and str(data.get("device")) in GATE_DEFAULTS:
            # A key that is left empty in YAML is None; anything else that is no block is a fault.
            gates = {} if data.get("gates") is None else data["gates"]
            if isinstance(gates, dict):
                data = {**data, "gates": {**GATE_DEFAULTS[data["device"]], **gates}}
        return data

    @field_validator("families")
    @classmethod
    def _no_blank(cls, names: list[str]) -> list[str]:
        if not all(name.strip() for name in names):
            raise ValueError("a family's name must not be empty")
        return names

    @field_validator("contexts", "families")
    @classmethod
    def _no_twins(cls, values: list) -> list:
        twins = sorted({str(v) for v in values if values.count(v) > 1})
        if twins:
            raise ValueError(f"{', '.join(twins)} is listed twice")
        return values

    @model_validator(mode="after")
    def _is_coherent(self) -> Design:
        check_coherence(self)
        return self

    # --- the grid -------------------------------------------------------------------------

    @property
    def family_slugs(self) -> dict[str, str]:
        """Path-safe name -> the name as the user wrote it."""
        return {slug_of(name): name for name in self.families}

    def prompt_path(self, context: int | str, family: str) -> str:
        """JSON file of a cell's prompt, relative to the repository root."""
        return f"results/{self.design}/prompts/{context}/{family}.json"

    @property
    def instrumented_runs(self) -> list[int]:
        """Instrumented runs of each order block; one each unless the design says otherwise."""
        return [1] * len(self.replicates) if self.instrumented is None else self.instrumented

    @property
    def baselines(self) -> list[str]:
        return [name for name, mode in self.modes.items() if not mode.speculative]

    def modes_in_order(self, replicate: int) -> list[str]:
        """AB BA: baselines first in even replicates, the whole order reversed in odd ones."""
        order = sorted(self.modes, key=lambda name: self.modes[name].speculative)
        return order[::-1] if replicate % 2 else order

    def contexts_of(self, mode: str) -> list[str]:
        """The contexts that a mode is measured at, as they name files."""
        return self._part(self.modes[mode].only)[0]

    def families_of(self, mode: str) -> list[str]:
        """Path-safe names of the families that a mode is measured on, in the design's order."""
        return self._part(self.modes[mode].only)[1]

    def _part(self, only: Only) -> tuple[list[str], list[str]]:
        """Contexts and families (path-safe) of a part of the grid; a count of None takes all."""
        return (
            [str(context) for context in self.contexts][: only.contexts],
            list(self.family_slugs)[: only.families],
        )

    def whole_grid(self, mode: str) -> bool:
        """Whether a mode is measured on all prompts: it is then what the study set out to judge."""
        return self._part(self.modes[mode].only) == self._part(Only())

    def plans(self, context: str, family: str, mode: str) -> bool:
        """Whether the mode is measured on this prompt."""
        return context in self.contexts_of(mode) and family in self.families_of(mode)

    def not_applicable(self, mode: str) -> str:
        """Why the design's device or pair cannot run a mode; '' if it can."""
        if self.modes[mode].delta is not None and self.models.target.source == "synthetic":
            return "the pair is made up, so a gap in its logits says nothing about language"
        return composition.not_on_cpu(self.modes[mode].runtime) if self.device == "cpu" else ""

    def drawing_modes(self) -> list[str]:
        """Modes whose draft samples and whose rule claims the target's distribution.

        Of the modes that run here, the first of each way to draw: what is around it (k, round,
        runtime) decides nothing about a token. At temperature 0 there is nothing to draw.
        """
        ways: dict[str, str] = {}
        for name, mode in self.modes.items():
            if (
                mode.sampling is not None
                and mode.sampling.temperature > 0
                and mode.promise != "nothing"
                and composition.needs_draft_model(mode.drafter)
                and not self.not_applicable(name)
            ):
                way = mode.acceptance, mode.sampling, mode.draft_sampling or mode.sampling
                ways.setdefault(repr(way), name)
        return list(ways.values())

    def reference_places(self) -> list[tuple[str, str, str]]:
        """(context, family, baseline) of every plain text that can be decoded here."""
        plain = [b for b in self.baselines if not self.not_applicable(b)]
        return [place for place in self.planned() if place[2] in plain]

    def planned(self) -> Iterator[tuple[str, str, str]]:
        """Every (context, family, mode) that is measured, in the design's order."""
        for context in map(str, self.contexts):
            for family in self.family_slugs:
                for mode in self.modes:
                    if self.plans(context, family, mode):
                        yield context, family, mode

    def cells(self) -> Iterator[Cell]:
        """Every cell in the planned order: context > family > replicate > mode."""
        planned, index = set(self.planned()), 0
        for context in map(str, self.contexts):
            for family in self.family_slugs:
                for replicate in range(len(self.replicates)):
                    for mode in self.modes_in_order(replicate):
                        if (context, family, mode) in planned:
                            yield Cell(self.design, context, family, mode, replicate, index)
                            index += 1

    def cell(self, context: str, family: str, mode: str, replicate: int) -> Cell:
        key = (str(context), family, mode, int(replicate))
        try:
            return _cells_by_key(self.to_json())[key]
        except KeyError:
            raise DesignError(
                f"design {self.design!r} has no cell context={context!r} family={family!r} "
                f"mode={mode!r} replicate={replicate}"
            ) from None

    def refuse_unknown(self, context: str, family: str) -> None:
        """Raise DesignError if the design has no such prompt; `family` is as file names have it."""
        known = {"context": [str(c) for c in self.contexts], "family": list(self.family_slugs)}
        for what, name in (("context", str(context)), ("family", family)):
            if name not in known[what]:
                raise DesignError(
                    f"design {self.design!r} has no {what} {name!r}; it has "
                    f"{', '.join(known[what])}"
                )

    @property
    def measured_runs(self) -> int:
        return sum(1 for _ in self.planned()) * sum(self.replicates)

    def plan_line(self) -> str:
        """The size of the grid in one line, for people."""
        names = ("families", "contexts", "modes", "order blocks")
        counts = [len(self.families), len(self.contexts), len(self.modes), len(self.replicates)]
        sizes = [f"{count} {name}" for count, name in zip(counts, names, strict=True)]
        jobs = sum(1 for _ in self.planned()) * len(self.replicates)
        # Where a mode is measured on a part of the grid, the product would not be the number.
        grid = " x ".join(sizes) + " =" if jobs == math.prod(counts) else ", ".join(sizes) + ":"
        return f"{self.design}: {grid} {jobs} timing jobs, {self.measured_runs} measured runs"

    def resolved_cell(self, cell: Cell) -> dict[str, Any]:
        """Everything that decides what the cell measures, and nothing else."""
        mode = self.modes[cell.mode]
        models = self.models.model_dump(mode="json")
        if not composition.needs_draft_model(mode.drafter):
            models["draft"] = None
        return {
            "context": cell.context,
            "family": cell.family,
            "mode": cell.mode,
            "replicate": cell.replicate,
            "composition": mode.composition(),
            "runs": self.replicates[cell.replicate],
            "warmup": self.warmup,
            "warmup_tokens": min(self.warmup_tokens or self.new_tokens, self.new_tokens),
            "warmup_s": self.warmup_s,
            "instrumented": self.instrumented_runs[cell.replicate],
            "new_tokens": self.new_tokens,
            "prefill_chunk": self.prefill_chunk,
            "device": self.device,
            "dtype": self.dtype,
            "cpu_threads": self.cpu_threads,
            "memory_limit_gib": self.memory_limit_gib,
            "stalled_share": self.gates.stalled_share,
            "seed": self.seed,
            "models": models,
        }

    def component_places(self) -> list[tuple[str, str, str]]:
        """(context, family, baseline) of every component cell, in the planned order."""
        if self.components is None or self.models.draft is None:
            return []
        contexts, families = self._part(self.components)
        drafted = {
            mode.baseline
            for mode in self.modes.values()
            # What is predicted from the times is greedy decoding.
            if mode.drafter == "model"
            and mode.sampling is None
            and not self.not_applicable(mode.baseline)
            # Where a round is one replay, its parts cannot be timed from outside.
            and not composition.runs_whole_rounds(mode.runtime)
        }
        return [
            (context, family, baseline)
            for context in contexts
            for family in families
            for baseline in self.baselines
            if baseline in drafted and self.plans(context, family, baseline)
        ]

    @property
    def draft_vocabulary(self) -> int | None:
        """Token ids that the draft scores where it is traced and timed by itself.

        As in the first mode that drafts with the model: what is predicted from trace and times
        holds for modes with the same head.
        """
        drafted = (mode for mode in self.modes.values() if mode.drafter == "model")
        return next((mode.draft_vocabulary for mode in drafted), None)

    def predictable(self, name: str) -> bool:
        """Whether trace and component times say what a mode would do: see analysis/prediction."""
        mode = self.modes[name]
        return (
            (mode.drafter, mode.acceptance, mode.policy) == ("model", "exact", "fixed")
            # The walk is of greedy proposals over a greedy text.
            and mode.sampling is None
            and (mode.draft_window, mode.target_cache) == (None, "kept")
            and mode.draft_vocabulary == self.draft_vocabulary
            and self.components is not None
            and mode.k <= self.components.most
            # The times are those of the baseline's runtime.
            and mode.runtime == self.modes[mode.baseline].runtime
        )

    def component_path(self, context: str, family: str, baseline: str) -> str:
        """Parquet file of a component cell, relative to the repository root."""
        return f"results/{self.design}/components/{context}/{family}/{baseline}.parquet"

    def component_cell(self, context: str, family: str, baseline: str) -> dict[str, Any]:
        """The values that decide what a component cell measures."""
        plain = self.modes[baseline]
        drafting = {"drafter": "model", "k": self.components.most, "round": "folded"}
        mode = plain.model_copy(update=drafting | {"draft_vocabulary": self.draft_vocabulary})
        return {
            "context": context,
            "family": family,
            "composition": mode.composition(),
            "new_tokens": self.components.most + 2,
            "prefill_chunk": self.prefill_chunk,
            "device": self.device,
            "dtype": self.dtype,
            "cpu_threads": self.cpu_threads,
            "memory_limit_gib": self.memory_limit_gib,
            "seed": self.seed,
            "models": self.models.model_dump(mode="json"),
        }

    def cell_sha256(self, cell: Cell) -> str:
        """Hash of the resolved cell and of the files that its composition names."""
        mode = self.modes[cell.mode]
        resolved = json.dumps(self.resolved_cell(cell), sort_keys=True)
        files = composition.files_sha256(
            composition.mode_files(mode.drafter, mode.runtime, mode.policy)
        )
        return hashlib.sha256(f"{resolved}\n{files}".encode()).hexdigest()

    def to_json(self) -> str:
        return self.model_dump_json(indent=1)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


# By the design's JSON: a design cannot be hashed, and Snakemake asks for one cell after another.
@functools.lru_cache(maxsize=4)
def _cells_by_key(design_json: str) -> dict[tuple[str, str, str, int], Cell]:
    design = Design.model_validate_json(design_json)
    return {(c.context, c.family, c.mode, c.replicate): c for c in design.cells()}


def parse_design(data: dict[str, Any]) -> Design:
    """Validate a design given as plain data (YAML or Snakemake's merged config).

    Raises DesignError with one sentence that names the key and what is allowed.
    """
    try:
        return Design.model_validate(data)
    except ValidationError as error:
        raise DesignError(sentence(error)) from None


def load_design(path: str | Path) -> Design:
    """Read a design from YAML or from the frozen JSON that the workflow writes."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise DesignError(f"{path} does not hold a design: expected keys and values")
    return parse_design(data)
