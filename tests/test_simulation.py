"""The interval keeps its promise on made-up studies, and the committed table says how well."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.simulation import CSV, POWER, SPREADS, simulate

# What is asked and not kept, with the bound that is. 16 normal families of this spread do not
# carry 80% at R = 1.10: the Student interval, exact there, reaches 79.1% (noncentral t), and
# 17 families would. A skewness of -2 is harsher than what the bounds were asked for.
KNOWN_MISSES = {
    ("normal", 16): POWER,
    ("strongly_left_skewed", 16): "wrong_at_1",
    ("strongly_left_skewed", 8): "wrong_at_1",
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return simulate()


def test_committed_table_is_current(table):
    committed = pd.read_csv(CSV, keep_default_na=False)
    # Another processor's rounding may turn a study or two.
    pd.testing.assert_frame_equal(table, committed, check_dtype=False, rtol=0, atol=0.003)


def test_coverage_and_wrong_words_keep_their_bounds(table):
    missed = {(r.spread, r.families): r.missed for r in table.itertuples() if r.missed}
    assert missed == KNOWN_MISSES


def test_known_misses_are_near(table):
    cells = table.set_index(["spread", "families"])
    assert cells.loc[("normal", 16), POWER] >= 0.75
    assert cells.loc[("strongly_left_skewed", 16), "wrong_at_1"] <= 0.07
    assert cells.loc[("strongly_left_skewed", 8), "wrong_at_1"] <= 0.07


def test_headline_covers_better_than_the_intervals_beside_it(table):
    assert (table["coverage"] > table["percentile_coverage"]).all()
    assert (table["coverage"] > table["bca_coverage"]).all()


def test_a_gain_is_never_called_a_loss(table):
    assert (table["slower_at_1.10"] <= 0.005).all()
    assert set(table["spread"]) == set(SPREADS)
