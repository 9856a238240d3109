"""One way to decode, as a composition of parts that are found in the tree by name."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from engine import composition
from engine.strict import Slug, Strict

Count = Annotated[int, Field(ge=1, le=1000)]
_TINY = 0.001


def _zero_or_not_tiny(temperature: float) -> float:
    if 0 < temperature < _TINY:
        raise ValueError(f"must be 0, which takes the most likely token, or {_TINY} and more")
    return temperature


class Only(Strict):
    """The part of the grid that a mode is measured on: the first so many; None is all.

    Counts and not names, so that a design with other contexts or families keeps its modes.
    """

    contexts: Count | None = None
    families: Count | None = None


class Sampling(Strict):
    """What is done to a distribution before a token is drawn; see config/README.md.

    What logits are divided by is never so small that they overflow to infinity.
    """

    temperature: Annotated[float, Field(ge=0, le=1000), AfterValidator(_zero_or_not_tiny)]
    top_k: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    repetition_penalty: Annotated[float, Field(ge=_TINY, le=1000)] = 1.0


class Mode(Strict):
    """One way to decode, as a composition; `drafter: none` is plain autoregressive decoding."""

    drafter: str
    k: Annotated[int, Field(ge=0, le=64)] = 0
    acceptance: str = "exact"
    delta: Annotated[float, Field(ge=0, le=1000)] | None = None
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    sampling: Sampling | None = None
    draft_sampling: Sampling | None = None
    bonus: bool = False
    policy: str = "fixed"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    draft_window: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    draft_vocabulary: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    target_cache: Literal["kept", "recomputed"] = "kept"
    round: Literal["repair", "folded", "step"] = "step"
    runtime: str = "eager"
    numerics: Literal["fast", "invariant"] = "fast"
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
        for part in ("drafter", "acceptance", "round"):
            allowed = composition.allowed_by(self.runtime, part)
            if allowed and (given := getattr(self, part)) not in allowed:
                raise ValueError(
                    f"runtime {self.runtime!r} cannot run {part}: {given}; it runs "
                    f"{', '.join(allowed)}"
                )
        if composition.captures(self.runtime):
            for name in _VARYING:
                if getattr(self, name) != (default := type(self).model_fields[name].default):
                    raise ValueError(
                        f"runtime {self.runtime!r} captures rounds of one kind beforehand: "
                        f"leave out {name} (default: {default})"
                    )
        if peer := composition.peer(self.runtime):
            self._is_the_peers(peer)
        if (self.target_cache, self.numerics) == ("recomputed", "invariant"):
            raise ValueError("numerics: invariant needs target_cache: kept")
        rule, policy = f"acceptance {self.acceptance!r}", f"policy {self.policy!r}"
        for name in ("delta", "epsilon"):
            self._takes(rule, name, composition.acceptance_parameters(self.acceptance))
        self._takes(policy, "threshold", composition.policy_parameters(self.policy))
        if not composition.needs_draft_model(self.drafter):
            for name in ("draft_window", "draft_vocabulary"):
                if getattr(self, name) is not None:
                    raise ValueError(f"drafter {self.drafter!r} has no model; leave out {name}")
            if self.threshold is not None:
                raise ValueError(f"drafter {self.drafter!r} has no model for {policy} to look at")
        return self

    def _is_the_peers(self, peer: str) -> None:
        """Raise ValueError for what another library does not do, or not as this one does."""
        for name in (*_VARYING, "numerics"):
            if getattr(self, name) != (default := type(self).model_fields[name].default):
                raise ValueError(
                    f"runtime {self.runtime!r} decodes by {peer}: leave out {name} "
                    f"(default: {default})"
                )
        if self.speculative and not self.bonus:
            raise ValueError(
                f"runtime {self.runtime!r} decodes by {peer}, which always takes a bonus token: "
                "write bonus: true"
            )

    @model_validator(mode="after")
    def _samples_coherently(self) -> Mode:
        rule, drawn = self.acceptance, self.sampling is not None and self.sampling.temperature > 0
        if self.speculative and drawn and rule in composition.rules_that("GREEDY"):
            raise ValueError(
                f"acceptance {rule!r} compares with the most likely token: with a temperature "
                "above 0 use coupled (plain sampling's own tokens) or rejection (its distribution)"
            )
        if self.sampling is None and rule in composition.rules_that("SAMPLED"):
            raise ValueError(f"acceptance {rule!r} needs sampling, such as {{temperature: 0.7}}")
        if self.draft_sampling is not None:
            if self.sampling is None:
                raise ValueError("draft_sampling needs sampling, which says how the target samples")
            if not composition.needs_draft_model(self.drafter):
                raise ValueError(
                    f"drafter {self.drafter!r} samples from no model: leave out draft_sampling"
                )
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

    def columns(self) -> dict[str, Any]:
        """The composition as a timing row holds it: a block of keys becomes JSON."""
        return {
            name: json.dumps(value) if isinstance(value, dict) else value
            for name, value in self.composition().items()
        }

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
    def proposes_k(self) -> bool:
        """Whether every round proposes k tokens, but for those that the end cuts."""
        return self.drafter in ("model", "reference") and self.policy == "fixed"

    @property
    def promise(self) -> str:
        """What holds of the text: the baseline's own `tokens`, their `distribution`, or `nothing`.

        Sampling at temperature 0 leaves one text that could be drawn.
        """
        promise = composition.promises().get(self.acceptance, "nothing")
        one_text = self.sampling is not None and self.sampling.temperature == 0
        return "tokens" if promise == "distribution" and one_text else promise

    @property
    def exact(self) -> bool:
        """Whether the mode promises the baseline's own tokens."""
        return self.promise == "tokens"


# What makes rounds of one mode unlike each other, or unlike the kernels' greedy ones.
_VARYING = ("policy", "sampling", "draft_window", "draft_vocabulary", "target_cache")


def _one_of(what: str, name: str, allowed: list[str]) -> str:
    if name not in allowed:
        raise ValueError(f"unknown {what} {name!r}; there is {', '.join(sorted(allowed))}")
    return name
