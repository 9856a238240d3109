"""Gate `ordered`: what ran beside what."""

from __future__ import annotations

import pytest

from engine.analysis.gates.ordered import PAUSE_S
from tests.planted_faults import (
    ARGUMENT,
    having,
    scheduled,
    tiny_design,
    two_families,
    verdicts,
    where,
)
from tests.synthetic_rows import study

_SPEC = {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"}
_THREE = {"ar": {"drafter": "none", "baseline": "ar"}, "spec": _SPEC, "wide": _SPEC | {"k": 8}}


def _order(design):
    return [(cell.family, cell.mode, cell.replicate) for cell in design.cells()]


def _last(order, place):
    return [*(p for p in order if p != place), place]


def _verdicts(design, order, pauses=None, mode="spec"):
    return verdicts(scheduled(study(design), order, pauses or {}), design, mode)


def _failed(found):
    return {name for name, v in found.items() if v.applicable and not v.passed}


def test_the_planned_order_passes():
    design = tiny_design(modes=_THREE)
    for mode in _THREE:
        assert not _failed(_verdicts(design, _order(design), mode=mode))


@pytest.mark.parametrize("replicate", [0, 1])
def test_a_block_in_the_wrong_order_fails(replicate):
    design = tiny_design()
    order = _order(design)
    one, other = (order.index(("news", mode, replicate)) for mode in ("ar", "spec"))
    order[one], order[other] = order[other], order[one]
    assert _failed(_verdicts(design, order)) == {"planned_order"}


def test_a_stranger_between_the_arms_fails():
    design = two_families()
    order = [p for p in _order(design) if p != ("sql", "ar", 0)]
    order.insert(order.index(("news", "spec", 0)), ("sql", "ar", 0))
    found = _verdicts(design, order)
    assert _failed(found) == {"adjacent"}
    assert "cells of 2048/sql/r0 ran in between" in found["adjacent"].text


def test_a_partial_block_names_the_commands_that_measure_it_whole():
    design = two_families()
    found = _verdicts(design, _last(_order(design), ("news", "spec", 0)))
    assert _failed(found) == {"adjacent"}
    text = found["adjacent"].text
    assert text.startswith("partial block: spec r0 and ar r0 ran apart")
    paths = " ".join(f"results/made-up/timing/2048/news/{m}/r0.parquet" for m in ("ar", "spec"))
    assert f"`rm -f {paths}` and then `snakemake --cores 1 {ARGUMENT}`" in text


def test_a_pause_inside_a_block_fails_even_if_nothing_of_the_study_ran_in_it():
    design = tiny_design()
    last = ("news", "ar", 1)
    assert not _failed(_verdicts(design, _order(design), {last: PAUSE_S - 1}))
    found = _verdicts(design, _order(design), {last: PAUSE_S + 1})
    assert _failed(found) == {"adjacent"}
    assert "31 s passed in between" in found["adjacent"].text


def test_a_pause_between_blocks_is_nobodys_fault():
    design = two_families()
    assert not _failed(_verdicts(design, _order(design), {("news", "spec", 1): 86_400}))


def test_a_mode_measured_again_alone_takes_only_itself_out():
    design = two_families(modes=_THREE)
    again = ("news", "spec", 0)
    order = _last(_order(design), again)
    # The hole that it left behind, between its neighbours of old.
    pauses = {("news", "wide", 0): 200}
    assert _failed(_verdicts(design, order, pauses, "spec")) == {"adjacent"}
    assert not _failed(_verdicts(design, order, pauses, "wide"))
    assert not _failed(_verdicts(design, order, pauses, "ar"))


def test_a_baseline_measured_again_alone_takes_all_its_modes_out():
    design = two_families(modes=_THREE)
    order = _last(_order(design), ("news", "ar", 0))
    assert _failed(_verdicts(design, order, mode="spec")) == {"adjacent"}
    assert _failed(_verdicts(design, order, mode="wide")) == {"adjacent"}


@pytest.mark.parametrize("stranger", [("news", "spec", 0), ("sql", "spec", 1)])
def test_jobs_that_overlap_fail(stranger):
    design = two_families()
    found = _verdicts(design, _order(design), {stranger: -3})
    assert "undivided" in _failed(found) if stranger[0] == "news" else not _failed(found)
    other = verdicts(scheduled(study(design), _order(design), {stranger: -3}), design, "ar")
    assert ("undivided" in _failed(other)) == (stranger[0] == "news")


def test_a_long_job_overlaps_all_that_started_during_it():
    design = tiny_design()
    rows = scheduled(study(design), _order(design), {})
    rows = [
        {**r, "cell_monotonic_end": 1e6} if (r["family"], r["mode"]) == ("news", "ar") else r
        for r in rows
    ]
    assert "undivided" in _failed(verdicts(rows, design))


def test_a_reboot_inside_a_block_fails():
    design = tiny_design()
    alter = where(having(boot_id="another"), family="news", mode="spec", replicate=1)
    rows = [r for r in study(design, alter=alter) if not r["warmup"]]
    found = verdicts(rows, design)
    assert _failed(found) == {"adjacent"}
    assert "booted" in found["adjacent"].text


def test_two_gpus_of_one_machine_measure_at_a_time_but_share_no_pair():
    design = two_families()
    order, overlap = _order(design), {("sql", "ar", 0): -3}

    def on(family=None, mode=None):
        rows = scheduled(study(design), order, overlap)
        there = [family in (None, r["family"]) and mode in (None, r["mode"]) for r in rows]
        return [{**r, "device_uuid": f"GPU-{t:d}"} for r, t in zip(rows, there, strict=True)]

    assert "undivided" in _failed(verdicts(on(), design))
    assert not _failed(verdicts(on(family="news"), design))
    apart = verdicts(on(mode="spec"), design)
    assert {"adjacent", "alike"} <= _failed(apart)
    assert "ran apart (on another GPU)" in apart["adjacent"].text


@pytest.mark.parametrize(("effect", "fails"), [(0.10, True), (0.05, False)])
def test_the_order_effect_has_a_limit(effect, fails):
    design = tiny_design()
    found = verdicts(
        study(design, ratio=lambda c: 1.0 if c.mode == "ar" else 0.7 * (1 + effect * c.replicate)),
        design,
    )
    assert found["order_effect"].figure == pytest.approx(effect, rel=0.1)
    assert _failed(found) == ({"order_effect"} if fails else set())


def test_one_replicate_and_baselines_have_no_order_effect():
    single = tiny_design(replicates=[3])
    assert not verdicts(study(single), single)["order_effect"].applicable
    design = tiny_design()
    assert not verdicts(study(design), design, "ar")["order_effect"].applicable
