"""One way to decode, as a composition of parts that are found in the tree by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from engine import composition
from engine.strict import Slug, Strict

Count = Annotated[int, Field(ge=1, le=1000)]


class Only(Strict):
    """The part of the grid that a mode is measured on: the first so many; None is all.

    Counts and not names, so that a design with other contexts or families keeps its modes.
    """

    contexts: Count | None = None
    families: Count | None = None


class Mode(Strict):
    """One way to decode, as a composition; `drafter: none` is plain autoregressive decoding."""

    drafter: str
    k: Annotated[int, Field(ge=0, le=64)] = 0
    acceptance: str = "exact"
    delta: Annotated[float, Field(ge=0, le=1000)] | None = None
    bonus: bool = False
    policy: str = "fixed"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    draft_window: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    draft_vocabulary: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    target_cache: Literal["kept", "recomputed"] = "kept"
    round: Literal["repair", "folded", "step"] = "step"
    runtime: str = "eager"
    numerics: Literal["fast"] = "fast"
    baseline: Slug
    only: Only = Only()

    @field_validator("drafter")
    @classmethod
    def _known_drafter(cls, name: str) -> str:
        return _one_of("drafter", name, ["none", *composition.drafters()])

    @field_validator("acceptance")
    @classmethod
    def _known_acceptance(cls, name: str) -> str:
        return _one_of("acceptance", name, composition.acceptance_rules())

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        return _one_of("policy", name, composition.policies())

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
        elif self.policy != "fixed" or self.target_cache != "kept":
            raise ValueError("drafter: none has nothing to decide: leave out policy, target_cache")
        rule, policy = f"acceptance {self.acceptance!r}", f"policy {self.policy!r}"
        self._takes(rule, "delta", composition.acceptance_parameters(self.acceptance))
        self._takes(policy, "threshold", composition.policy_parameters(self.policy))
        if not composition.needs_draft_model(self.drafter):
            for name in ("draft_window", "draft_vocabulary"):
                if getattr(self, name) is not None:
                    raise ValueError(f"drafter {self.drafter!r} has no model; leave out {name}")
            if self.threshold is not None:
                raise ValueError(f"drafter {self.drafter!r} has no model for {policy} to look at")
        return self

    def _takes(self, part: str, name: str, taken: list[str]) -> None:
        """Raise ValueError unless the key `name` is given exactly if the mode's part takes it."""
        given = getattr(self, name) is not None
        if given and name not in taken:
            raise ValueError(f"{part} takes no {name}; leave it out")
        if not given and name in taken:
            raise ValueError(f"{part} needs {name}")

    def composition(self) -> dict[str, Any]:
        """What decides how the mode decodes; where it is measured does not."""
        return self.model_dump(mode="json", exclude={"only"})

    @property
    def measured_on(self) -> str:
        """The part of the grid, for people."""
        counts = (("contexts", self.only.contexts), ("families", self.only.families))
        parts = [f"the first {count} {what}" for what, count in counts if count]
        return " and ".join(parts) or "the whole grid"

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
