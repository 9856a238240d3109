"""The frozen design: the first one is kept, and every later change is on record."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.design import load_design, parse_design
from engine.preparation.freeze import FreezeFault, change_lines, freeze, read_freeze
from tests.workspace import ROOT


def design(**changes):
    data = json.loads(load_design(ROOT / "config" / "config.yaml").to_json())
    return parse_design({**data, **changes})


@settings(deadline=None, max_examples=25)
@given(seeds=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_every_change_and_no_other_is_recorded(tmp_path_factory, seeds):
    path = tmp_path_factory.mktemp("freeze") / "frozen.json"
    for seed in seeds:
        record = freeze(design(seed=seed), [], path)
    assert record["frozen_sha256"] == design(seed=seeds[0]).sha256
    assert record["sha256"] == design(seed=seeds[-1]).sha256
    changes = [(a, b) for a, b in itertools.pairwise(seeds) if a != b]
    assert [tuple(c["keys"]["seed"]) for c in record["changes"]] == changes
    assert len(change_lines(record)) == len(changes)


def test_a_nested_change_is_named_by_its_path(tmp_path):
    path = tmp_path / "frozen.json"
    freeze(design(), [], path)
    record = freeze(design(gates={"drift": 0.5}), ["gates=..."], path)
    (line,) = change_lines(record)
    assert "gates.drift changed from 0.03 to 0.5" in line
    assert record["overrides"] == ["gates=..."]


@pytest.mark.parametrize(
    "said", [b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"{}", b'{"design": 1, "changes": []}']
)
def test_a_record_of_another_shape_is_as_damaged(tmp_path, said):
    path = tmp_path / "frozen.json"
    path.write_bytes(said)
    for read in (lambda: freeze(design(), [], path), lambda: read_freeze(path)):
        with pytest.raises(FreezeFault, match="restore it, or delete it together with"):
            read()
    assert path.read_bytes() == said


def test_a_damaged_record_is_not_silently_begun_afresh(tmp_path):
    path = tmp_path / "frozen.json"
    path.write_text('{"frozen_at": ', encoding="utf-8")
    with pytest.raises(FreezeFault, match="damaged"):
        freeze(design(), [], path)
    assert path.read_text(encoding="utf-8") == '{"frozen_at": '
