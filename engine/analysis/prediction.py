"""R of any k without measuring it: walked rounds, each priced by component times.

METHODS section 6. The rounds are known exactly for greedy decoding; only the costs are uncertain.
They are resampled: the prompts whose components were measured, and the repeats of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from engine.analysis.walk import Round, walk
from engine.design import Design

Part = tuple[str, int]
_DRAWS = 2000


class Prices:
    """Median seconds of each part at one context, and resampled ones [draws].

    `components` holds the rows of one (context, baseline). A number of rows that was not measured
    has no price.
    """

    def __init__(self, components: pd.DataFrame, seed: int, draws: int = _DRAWS):
        rng = np.random.default_rng(seed)
        prompts = [prompt for _, prompt in components.groupby("family", sort=False)]
        # One draw of prompts for all parts: a slow minute made all of a prompt's parts slow.
        picks = rng.integers(len(prompts), size=(len(prompts), draws))
        medians: dict[Part, list[float]] = defaultdict(list)
        drawn: dict[Part, list[np.ndarray]] = defaultdict(list)
        for prompt in prompts:
            # One draw of repeats too: they are interleaved, so a slow second was slow for all.
            count = min(len(seconds) for seconds in prompt["seconds"])
            repeats = rng.integers(count, size=(draws, count))
            for row in prompt.to_dict("records"):
                part, seconds = (row["part"], int(row["rows"])), np.asarray(row["seconds"], float)
                medians[part].append(float(np.median(seconds)))
                drawn[part].append(np.median(seconds[repeats], axis=1))
        self.median: dict[Part, float] = {p: float(np.mean(m)) for p, m in medians.items()}
        self.drawn: dict[Part, np.ndarray] = {
            part: np.take_along_axis(np.stack(found), picks, axis=0).mean(axis=0)
            for part, found in drawn.items()
            if len(found) == len(prompts)
        }


def plain_cost(tokens: int, prices: Mapping[Part, Any]) -> Any:
    """Seconds of plain decoding: the first token comes with the prefill and needs no forward."""
    return tokens * prices["step", 1] - prices["verify", 1]


def generation_cost(rounds: Sequence[Round], prices: Mapping[Part, Any]) -> Any:
    """Seconds of a walked generation: a float from medians, an array from draws."""
    total: Any = 0.0
    for r in rounds:
        total = total + prices["verify", r.rows] if r.rows else total
        total = total + prices["control", max(r.k, 1)]
        total = total + r.drafted * prices["draft", 1]
        if r.behind:
            total = total + prices["draft", r.behind]
        if r.repaired:
            total = total + prices["verify", 1]
    return total


# The two forms of METHODS section 3, with what an efficient engine does about the bonus token.
_FORMS = {("repair", False), ("folded", True)}


class Predictor:
    """The acceptance trace and the component times of a study, ready to price any k."""

    def __init__(self, trace: pd.DataFrame, components: pd.DataFrame, design: Design):
        self.design = design
        self.most = design.components.most if design.components else 0
        tail = (1 - design.inference.level) / 2
        self._tails = [tail, 1 - tail]
        self.texts: dict[tuple[str, str], np.ndarray] = {
            key: group.sort_values("position")["matches"].to_numpy()
            for key, group in trace.groupby(["context", "family"], sort=False)
        }
        self.prices: dict[tuple[str, str], Prices] = {
            key: Prices(rows, design.seed)
            for key, rows in components.groupby(["context", "baseline"], sort=False)
        }

    def table(self) -> pd.DataFrame:
        """One row a (context, baseline, round, bonus, k): r, low, high, rounds, families, best.

        R is the geometric mean over the families with a trace. Its interval is of the prices, which
        were measured; the families and their texts are those that they are. `best` is the
        k with the highest R of its form. k goes as far as the components do. The forms are those of
        the design's modes and the two of METHODS section 3.
        """
        own = {(m.round, m.bonus) for m in self.design.modes.values() if m.drafter == "model"}
        found = []
        for context, baseline in self.prices:
            families = [family for at, family in self.texts if at == context]
            if not families:
                continue
            for form, bonus in sorted(_FORMS | own):
                curve = [
                    {"context": context, "baseline": baseline, "round": form, "bonus": bonus}
                    | {"k": k}
                    | self.predict(context, baseline, form, bonus, k, families)
                    for k in range(1, self.most + 1)
                ]
                best = max(curve, key=lambda row: row["r"])
                found += [row | {"best": row is best} for row in curve]
        return pd.DataFrame(found, columns=_TABLE)

    def predict(
        self, context: str, baseline: str, form: str, bonus: bool, k: int, families: Sequence[str]
    ) -> dict[str, Any]:
        """R over these families with its interval, and the mean number of rounds."""
        prices = self.prices[context, baseline]
        texts = [self.texts[context, family] for family in families]
        walks = [walk(text, k, form, bonus) for text in texts]

        def log_r(price: Mapping[Part, Any]) -> Any:
            logs = [
                np.log(plain_cost(len(text), price) / generation_cost(rounds, price))
                for text, rounds in zip(texts, walks, strict=True)
            ]
            return np.mean(logs, axis=0)

        low, high = np.exp(np.quantile(log_r(prices.drawn), self._tails))
        return {
            "r": float(np.exp(log_r(prices.median))),
            "low": float(low),
            "high": float(high),
            "rounds": float(np.mean([len(rounds) for rounds in walks])),
            "families": len(families),
        }

    def beside(self, verdicts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Predictions beside what was measured, one row a mode that drafts exactly with the model.

        Each is made for the families that its verdict rests on (`verdicts`: entries of
        verdict.json), or, where they are too few for an interval, for all that have a trace, beside
        the R of all that were measured; `gated` says which.
        Columns: context, mode, k, round, bonus, baseline, r, low, high, rounds, families, gated,
        measured, measured_low, measured_high, and `inside`: the measured R lies in the predicted
        interval.
        """
        found = []
        for entry in verdicts:
            mode, context = self.design.modes[entry["mode"]], str(entry["context"])
            gated = entry["interval"]["low"] is not None
            measured = entry["r"] if gated else entry["r_all"]
            predictable = self.design.predictable(entry["mode"])
            if not predictable or measured is None or (context, mode.baseline) not in self.prices:
                continue
            out = {family["family"] for family in entry["families_out"]} if gated else set()
            families = [
                family
                for family in self.design.families_of(entry["mode"])
                if family not in out and (context, family) in self.texts
            ]
            if not families:
                continue
            made = self.predict(context, mode.baseline, mode.round, mode.bonus, mode.k, families)
            found.append(
                {"context": context, "mode": entry["mode"], "k": mode.k}
                | {"round": mode.round, "bonus": mode.bonus, "baseline": mode.baseline}
                | made
                | {"gated": gated, "measured": measured}
                | {f"measured_{end}": entry["interval"][end] for end in ("low", "high")}
                | {"inside": made["low"] <= measured <= made["high"]}
            )
        return pd.DataFrame(found, columns=_BESIDE)


_TABLE = [
    "context", "baseline", "round", "bonus", "k", "r", "low", "high", "rounds", "families", "best",
]  # fmt: skip
_BESIDE = [
    "context", "mode", "k", "round", "bonus", "baseline", "r", "low", "high", "rounds", "families",
    "gated", "measured", "measured_low", "measured_high", "inside",
]  # fmt: skip


def score(compared: pd.DataFrame) -> tuple[int, int, float]:
    """(measured R inside their predicted interval, of how many, median relative half-width)."""
    half = (compared["high"] - compared["low"]) / 2 / compared["r"]
    return int(compared["inside"].sum()), len(compared), float(half.median())
