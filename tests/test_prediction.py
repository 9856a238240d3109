"""Predicted R on known truth: chosen prices and texts give the R that follows from them."""

import math

import numpy as np
import pandas as pd
import pytest

from engine.analysis.prediction import Predictor, Prices, generation_cost
from engine.analysis.walk import walk
from tests.synthetic_rows import small_design

STEP, DRAFT, CONTROL = 0.04, 0.008, 0.001
FAMILIES = ["news", "python", "json", "legal"]


def verify(rows: int) -> float:
    """A cost with a cliff, as small matrix products have them."""
    return 0.038 + 0.004 * rows + (0.02 if rows > 4 else 0.0)


def components(noise: float = 0.0, repeats: int = 9) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    parts = {("step", 1): STEP, ("draft", 1): DRAFT, ("draft", 2): 1.3 * DRAFT}
    parts |= {("verify", rows): verify(rows) for rows in range(1, 10)}
    parts |= {("control", k): CONTROL for k in range(1, 9)}
    return pd.DataFrame(
        {
            "context": "2048",
            "family": family,
            "baseline": "ar",
            "part": part,
            "rows": rows,
            "seconds": [seconds * math.exp(noise * rng.standard_normal()) for _ in range(repeats)],
        }
        for family in FAMILIES
        for (part, rows), seconds in parts.items()
    )


def trace(agreement: float = 0.75) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    table = []
    for family in FAMILIES:
        hits, run = rng.random(64) < agreement, 0
        for position in reversed(range(64)):
            run = run + 1 if hits[position] else 0
            table.append(
                {"context": "2048", "family": family, "position": position, "matches": run}
            )
    return pd.DataFrame(table)


def design():
    return small_design(
        contexts=[2048],
        families=FAMILIES,
        components={"most": 8},
        modes={
            "ar": {"drafter": "none", "baseline": "ar"},
            "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
        },
    )


def true_r(texts: pd.DataFrame, k: int, form: str, bonus: bool) -> float:
    """R by hand: the rounds of each text, each forward at its chosen cost."""
    logs = []
    for _, text in texts.groupby("family"):
        rounds = walk(text.sort_values("position")["matches"].tolist(), k, form, bonus)
        seconds = sum(
            verify(r.rows) + CONTROL + DRAFT * r.drafted
            + (DRAFT * (1.3 if r.behind == 2 else 1.0) if r.behind else 0)
            + (verify(1) if r.repaired else 0)
            for r in rounds
        )  # fmt: skip
        # The first token of plain decoding comes with the prefill.
        logs.append(math.log((64 * STEP - verify(1)) / seconds))
    return math.exp(np.mean(logs))


@pytest.mark.parametrize(("form", "bonus"), [("repair", False), ("folded", True)])
def test_chosen_costs_give_the_r_that_follows_from_them(form, bonus):
    texts = trace()
    table = Predictor(texts, components(), design()).table()
    rows = table[(table["round"] == form) & (table["bonus"] == bonus)]
    assert rows["k"].tolist() == list(range(1, 9))
    for row in rows.itertuples():
        assert row.r == pytest.approx(true_r(texts, row.k, form, bonus))
        assert row.low == pytest.approx(row.r)
        assert row.high == pytest.approx(row.r)
    assert rows.loc[rows["best"], "k"].tolist() == [rows.loc[rows["r"].idxmax(), "k"]]


def test_noisy_prices_have_an_interval_that_holds_the_truth():
    texts, held = trace(), 0
    table = Predictor(texts, components(noise=0.05), design()).table()
    for row in table.itertuples():
        assert row.low < row.r < row.high
        held += row.low <= true_r(texts, row.k, row.round, row.bonus) <= row.high
    assert held >= 0.8 * len(table)


def test_a_slowdown_that_all_parts_share_does_not_widen_the_interval():
    rng, quiet = np.random.default_rng(7), components()
    slow = rng.lognormal(0, 0.4, size=(len(FAMILIES), 9))
    shaken = quiet.assign(
        seconds=[
            list(np.asarray(row.seconds) * slow[FAMILIES.index(row.family)])
            for row in quiet.itertuples()
        ]
    )
    shuffled = shaken.assign(seconds=[list(rng.permutation(s)) for s in shaken["seconds"]])
    widths = [
        (table["high"] - table["low"]).median()
        for table in (Predictor(trace(), rows, design()).table() for rows in (shaken, shuffled))
    ]
    assert widths[0] < widths[1] / 3


def test_a_measurement_beside_its_prediction():
    texts, made = trace(), Predictor(trace(), components(noise=0.02), design())
    truth = true_r(texts, 4, "repair", False)
    entry = {
        "context": "2048",
        "mode": "spec",
        "r": truth,
        "r_all": truth,
        "interval": {"low": truth * 0.98, "high": truth * 1.02},
        "families_out": [],
    }
    wrong = entry | {"r": truth * 1.5}
    ungated = entry | {"r": None, "interval": {"low": None, "high": None}}
    ungated["families_out"] = [{"family": family} for family in FAMILIES]
    table = made.beside([entry, wrong, ungated])
    assert table["inside"].tolist() == [True, False, True]
    assert table["gated"].tolist() == [True, True, False]
    assert table["families"].tolist() == [4, 4, 4]


def test_without_component_times_nothing_is_predicted():
    made = Predictor(trace(), components().iloc[:0], design())
    assert made.table().empty
    assert "best" in made.table()
    interval = {"low": 0.9, "high": 1.1}
    entry = {"context": "2048", "mode": "spec", "r": 1.0, "r_all": 1.0, "interval": interval}
    assert made.beside([entry | {"families_out": []}]).empty


def test_more_rows_than_were_measured_have_no_price():
    prices = Prices(components(), seed=1)
    with pytest.raises(KeyError):
        generation_cost(walk([99] * 64, 12, "folded", True), prices.median)
