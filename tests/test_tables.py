"""Frames survive the way through Parquet, also when nothing in them has a value."""

import math

import pandas as pd

from engine.tables import read_frame, write_frame


def test_a_study_without_one_value_reads_back_as_numbers(tmp_path):
    frame = pd.DataFrame({"name": ["a"], "r": [None], "pairs": [[math.nan, math.nan]], "no": [[]]})
    write_frame(frame, tmp_path / "t.parquet")
    back = read_frame(tmp_path / "t.parquet")
    assert math.isnan(back["r"][0])
    assert all(math.isnan(float(value)) for value in back["pairs"][0])
    assert list(back["no"][0]) == []
    assert back["name"][0] == "a"
