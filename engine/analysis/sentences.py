"""A verdict in plain English: one sentence a context and mode, for a reader new to the project."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from engine.analysis.judgement import FASTER, INCONCLUSIVE, NOT_JUDGED, SAME, SLOWER
from engine.design import NATURAL

_CLAIMS = {
    FASTER: "{mode} is faster than {baseline}",
    SLOWER: "{mode} is slower than {baseline}",
    SAME: "{mode} is as fast as {baseline}",
    INCONCLUSIVE: "it is open whether {mode} is faster or slower than {baseline}",
}


def sentence(entry: dict[str, Any], families_least: int) -> str:
    """The entry of verdict.json as a sentence; `families_least` is what any interval needs."""
    place = "At the prompts' own length" if entry["context"] == NATURAL else (
        f"At context {entry['context']}"
    )  # fmt: skip
    count = f"{entry['families_in']} of {entry['families_planned']} families"
    if entry["not_applicable"]:
        return f"{place}, {entry['mode']} does not apply here: {entry['not_applicable']}."
    if entry["verdict"] == NOT_JUDGED:
        return (
            f"{place}, {entry['mode']} is not judged against {entry['baseline']}: {count} passed "
            f"the timing gates, and an interval needs at least {families_least}."
        )
    claim = _CLAIMS[entry["verdict"]].format(**entry)
    if entry["faster_baseline"]:
        claim = f"{entry['mode']} is faster than {entry['baseline']}, but {entry['note']}"
    return f"{place}, {claim}: {_figures(entry)}, {count}{_left_out(entry)}."


def _left_out(entry: dict[str, Any]) -> str:
    """Why families are missing: nobody measured them, or their times did not pass the gates."""
    unmeasured = entry["families_planned"] - entry["families_measured"]
    failed = entry["families_measured"] - entry["families_in"]
    parts = [f"{failed} did not pass the timing gates"] if failed else []
    parts += [f"{unmeasured} {'has' if unmeasured == 1 else 'have'} no times"] if unmeasured else []
    return f"; {', '.join(parts)}" if parts else ""


def basis(entry: dict[str, Any]) -> str:
    """What the entry rests on beside R: the interval's kind, the families, tokens, acceptance."""
    interval, exact = entry["interval"], entry["exact"]
    parts = [f"R > 1 on {entry['faster_on']} of {entry['families_in']} families"]
    if interval["low"] is not None:
        method = interval["method"].replace("student", "Student")
        parts.insert(0, f"{interval['level']:.0%} interval by {method}")
    if exact["of"]:
        tokens = f"tokens equal on {exact['equal']} of {exact['of']} families"
        apart = {"a near-tie": exact["near_tie"], "failed": exact["failed"]}
        parts.append(", ".join([tokens, *(f"{what} on {n}" for what, n in apart.items() if n)]))
    if entry["acceptance_median"] is not None:
        parts.append(f"acceptance {entry['acceptance_median']:.2f}")
    if entry["families_needed"] and entry["verdict"] in (INCONCLUSIVE, NOT_JUDGED):
        parts.append(f"a firm verdict would need about {entry['families_needed']} families")
    return "; ".join(parts)


def absentees(families_out: Iterable[dict[str, Any]]) -> str:
    """Families that are out, grouped by the gates that they failed."""
    groups: dict[str, list[str]] = {}
    for out in families_out:
        groups.setdefault(", ".join(out["failed_gates"]) or out["reason"], []).append(out["family"])
    return "; ".join(f"{cause}: {', '.join(names)}" for cause, names in groups.items())


def failure_lines(failures: Iterable[dict[str, Any]]) -> list[str]:
    """Cells without a measurement, counted by context, mode and status."""
    # A mode that the device cannot run has said so in its sentence, once for all its cells.
    cells = [f for f in failures if f["status"] != "not_applicable"]
    counts = Counter((f["context"], f["mode"], f["status"]) for f in cells)
    return [
        f"{count} {'cell' if count == 1 else 'cells'} of {mode} at context {context} without a "
        f"measurement: {status.replace('_', ' ')}"
        for (context, mode, status), count in counts.items()
    ]


def _figures(entry: dict[str, Any]) -> str:
    low, high = entry["interval"]["low"], entry["interval"]["high"]
    # Two digits would hide on which side of 1 a narrow interval lies.
    digits = 2 if high - low >= 0.02 else 3
    return f"R {entry['r']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
