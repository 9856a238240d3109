"""How values are written in the report; a missing one is a dash, never 'nan' or 'None'."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

MISSING = "–"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def number(value: float | None, digits: int = 3) -> str:
    """With a fixed number of decimals, so that a column lines up."""
    return MISSING if is_missing(value) else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """A count or a median of counts: no decimals unless it has some."""
    return MISSING if is_missing(value) else f"{value:.10g}"


def short(value: float | None) -> str:
    """Any magnitude at four digits."""
    return MISSING if is_missing(value) else f"{value:.4g}"


def seconds(value: float | None) -> str:
    if is_missing(value):
        return MISSING
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def ratio_of_log(log_r: float | None) -> str:
    """R, from its logarithm."""
    return MISSING if is_missing(log_r) else number(math.exp(log_r))


def interval(bounds: Mapping[str, float | None] | None, digits: int = 3) -> str:
    """'[low, high]' of a mapping with these keys."""
    if not bounds or is_missing(bounds["low"]) or is_missing(bounds["high"]):
        return MISSING
    return f"[{bounds['low']:.{digits}f}, {bounds['high']:.{digits}f}]"


def breakable(name: str) -> Markup:
    """A name that may go on in the next line after an underscore, and so not within a word."""
    return Markup(str(escape(plain(name))).replace("_", "_<wbr>"))


def plain(value: Any) -> Any:
    """Text without what no page can show: control characters and broken surrogates.

    Errors of crashed cells carry terminal colours; a page with a NUL in it is not HTML.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return MISSING if is_missing(value) else value
    return _CONTROLS.sub("", value).encode("utf-8", "replace").decode("utf-8")
