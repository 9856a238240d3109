"""Gate clauses and token outcomes of a made-up study, as the gates hand them to the analysis."""

from __future__ import annotations

import numpy as np
import pandas as pd

from engine.design import Design

# (context, family, mode)
Cells = tuple[str, str, str]


def gates_frame(design: Design, failed: dict[Cells, str] | None = None) -> pd.DataFrame:
    """One passing clause a gate and (context, family, mode); `failed` names the gate to fail."""
    clauses = []
    for context in map(str, design.contexts):
        for family in design.family_slugs:
            for name, mode in design.modes.items():
                for gate in ("complete", "steady", "precise", "ordered", "undisturbed", "closed"):
                    passed = (failed or {}).get((context, family, name)) != gate
                    clauses.append(
                        {
                            "context": context,
                            "family": family,
                            "mode": name,
                            "baseline": mode.baseline,
                            "gate": gate,
                            "clause": f"{gate}_clause",
                            "applicable": True,
                            "passed": passed,
                            "figure": 0.01 if passed else 0.5,
                            "limit": 0.02,
                            "text": "within the limit" if passed else "0.5 exceeds 0.02",
                        }
                    )
    return pd.DataFrame(clauses)


def tokens_frame(design: Design, outcomes: dict[Cells, str] | None = None) -> pd.DataFrame:
    """Token outcomes of the modes with a drafter: 'equal' unless `outcomes` says otherwise."""
    judged = []
    for context in map(str, design.contexts):
        for family in design.family_slugs:
            for name, mode in design.modes.items():
                if not mode.speculative:
                    continue
                default = "equal" if mode.exact else "not_applicable"
                outcome = (outcomes or {}).get((context, family, name), default)
                apart = outcome in ("near_tie", "failed")
                judged.append(
                    {
                        "context": context,
                        "family": family,
                        "mode": name,
                        "baseline": mode.baseline,
                        "exact": mode.exact,
                        "outcome": outcome,
                        "first_divergence": 7 if apart else -1,
                        "gap": 0.01 if apart else np.nan,
                        "bound": 0.02 if apart else np.nan,
                        "text": outcome,
                    }
                )
    return pd.DataFrame(judged)
