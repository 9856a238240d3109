"""Does a synthetic pair do what it was designed to do? Agreement and acceptance by family.

Two quantities (METHODS section 3): agreement over the positions of the reference text, and the
share of judged proposals that pass, which has the same designed value, because a proposal is
judged only where all before it were right. Accepted over proposed stands beside.
"""

from __future__ import annotations

import math

import pandas as pd
from scipy import stats

from engine.design import Design

LEVEL = 0.999  # of each interval: a study has about a hundred

_COLUMNS = [
    "context", "family", "mode", "quantity", "designed", "measured", "trials", "low", "high",
    "inside",
]  # fmt: skip


def compare_designed(design: Design, rows: pd.DataFrame, trace: pd.DataFrame) -> pd.DataFrame:
    """One row a (context, family, quantity) with the exact binomial interval of what was seen.

    `quantity` is agreement (from the trace, `mode` ''), judged (passed over judged, of an exact
    mode that drafts with the model) or acceptance (accepted over proposed: not binomial, so its
    interval is NaN and `inside` None). Source of the interval: Clopper and Pearson 1934.
    """
    plan, table = design.models.target.plan, []
    drafting = [
        name for name, mode in design.modes.items() if mode.drafter == "model" and mode.exact
    ]
    timed = rows[rows["status"].eq("ok") & ~rows["warmup"].eq(True)]
    for context in map(str, design.contexts):
        for family, name in design.family_slugs.items():
            agreed = plan.designed_agreement(int(context), design.families.index(name))
            here = trace[(trace["context"] == context) & (trace["family"] == family)]
            if len(here):
                passed, trials = int((here["matches"] > 0).sum()), len(here)
                table.append([context, family, "", *_beside("agreement", agreed, passed, trials)])
            for mode in drafting:
                runs = timed[
                    (timed["context"] == context)
                    & (timed["family"] == family)
                    & (timed["mode"] == mode)
                ]
                if len(runs):
                    table += _of_run(context, family, mode, agreed, plan.k, runs.iloc[0])
    return pd.DataFrame(table, columns=_COLUMNS)


def _of_run(context: str, family: str, mode: str, agreed: float, k: int, run: pd.Series) -> list:
    accepted, judged, proposed = (int(run[c]) for c in ("accepted", "judged", "proposed"))
    designed = sum(agreed**i for i in range(1, k + 1)) / k
    share = accepted / proposed
    return [
        [context, family, mode, *_beside("judged", agreed, accepted, judged)],
        [context, family, mode, "acceptance", designed, share, proposed, math.nan, math.nan, None],
    ]


def _beside(quantity: str, designed: float, passed: int, trials: int) -> list:
    low, high = stats.binomtest(passed, trials).proportion_ci(LEVEL, method="exact")
    return [quantity, designed, passed / trials, trials, low, high, bool(low <= designed <= high)]


def sentence(table: pd.DataFrame) -> str:
    """How many intervals hold the designed value, and the acceptance over all families."""
    parts = []
    for quantity, what in (("agreement", "agreement"), ("judged", "share of judged proposals")):
        here = table[table["quantity"] == quantity]
        if len(here):
            held = int(here["inside"].astype(bool).sum())
            parts.append(f"the designed {what} lies in {held} of {len(here)} intervals")
    here = table[table["quantity"] == "acceptance"]
    for context, group in here.groupby("context", sort=False):
        means = (group[column].mean() for column in ("measured", "designed"))
        parts.append("at {} acceptance {:.3f}, designed {:.3f}".format(context, *means))
    return "; ".join(parts) or "nothing was measured"
