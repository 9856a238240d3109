"""The limits that judge a design: those of the six gates, and those of the inference."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from engine.strict import Share, Strict


class Gates(Strict):
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


class Inference(Strict):
    """How families become one interval and one word."""

    level: Share = 0.95
    resamples: Annotated[int, Field(ge=1000, le=1_000_000)] = 10_000
    faster_above: Annotated[float, Field(ge=1, lt=10)] = 1.005
    slower_below: Annotated[float, Field(gt=0, le=1)] = 0.995
    same_low: Annotated[float, Field(gt=0, lt=1)] = 0.95
    same_high: Annotated[float, Field(gt=1, lt=10)] = 1.05
    bootstrap_from: Annotated[int, Field(ge=2)] = 8
    student_t_from: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _in_order(self) -> Inference:
        if self.bootstrap_from < self.student_t_from:
            raise ValueError(
                f"bootstrap_from ({self.bootstrap_from}) is below student_t_from "
                f"({self.student_t_from}), under which there is no interval: raise it"
            )
        return self
