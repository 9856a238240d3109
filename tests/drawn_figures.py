"""Every mechanism figure with its drawing, and made-up studies to draw."""

from __future__ import annotations

import functools

from engine.figures import (
    break_even,
    chain,
    cuda_graph,
    diagnosis,
    draft_free,
    memory,
    oracles,
    phase_o,
    predicted,
    relaxed,
    style,
    sweep,
    waterfall,
)
from engine.figures.study import Study
from tests.synthetic_mechanism import mechanism_design, mechanism_study, modes
from tests.synthetic_rows import FAMILIES

DRAWN = {
    "chain": chain,
    "sweep": sweep,
    "phase_o": phase_o,
    "diagnosis": diagnosis,
    "relaxed": relaxed,
    "oracles": oracles,
    "cuda_graph": cuda_graph,
    "draft_free": draft_free,
    "waterfall": waterfall,
    "predicted": predicted,
    "break_even": break_even,
    "memory": memory,
}


@functools.cache
def made() -> Study:
    """Two contexts with published values, every mode judged."""
    return mechanism_study(spread=0.02)[0]


def one_context(speeds=None, **more) -> Study:
    design = mechanism_design(contexts=[512], families=FAMILIES[:4], modes=modes())
    return mechanism_study(design, speeds, **more)[0]


def said(name: str, study: Study) -> str:
    with style.look():
        return DRAWN[name].draw(study)[1]
