"""The look of every figure: colours, type, sizes, and how a file is saved.

Figures are built without pyplot, so nothing is global, and unchanged data gives an unchanged
file: no date, no version, fixed ids. Letters are saved as outlines of the font that matplotlib
carries, because a figure with text as text is set in whatever font the reader happens to have.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

INK, QUIET, FAINT, BAND = "#1a1a1a", "#555555", "#d9d9d9", "#f1f3f5"
OUT, ALARM = "#6b6b6b", "#a3122a"
TITLE_PT, LABEL_PT, SMALL_PT = 10.5, 8.5, 7.5
# A phone shows a tall figure at about 340 CSS pixels: at this width its type stays above 8.5 px.
TALL_IN = 3.9
SYNTHETIC = "SYNTHETIC: made-up models or numbers, not a result about real models"

# Wong's colour-blind-safe set, less the shades under 3:1 on white, with dark ones added.
_COLOURS = ("#0072b2", "#d55e00", "#007d5c", "#aa4499", "#332288", "#8a6d00", "#882255", "#4a4a4a")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Neighbours in a figure differ in colour first; the marker tells apart those that share one.
_STANDARD = (
    "spec", "phase_o", "spec_folded", "relaxed", "oracle", "oracle_bonus", "graph", "ar",
    "graph_draft", "graph_verify", "graph_naive", "draft_free", "ar_graph",
)  # fmt: skip


def banners(verdict: Mapping[str, Any]) -> list[str]:
    """What must be known of a study wherever it is drawn: made up, or measured elsewhere."""
    reference = verdict["reference"]
    return [
        *([SYNTHETIC] if verdict["synthetic"] else []),
        *([reference["label"]] if reference else []),
    ]


_RC = {
    "font.family": "DejaVu Sans",
    "font.size": LABEL_PT,
    "text.color": INK,
    "text.parse_math": False,  # names may hold dollar signs
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "specscale",
    "svg.id": None,
    "path.simplify": False,
}


# Contexts are told apart without the modes' colours: dark to light, each with a dash of its own.
_CONTEXTS = (
    ("#1a1a1a", "o", "-"), ("#5f5f5f", "s", "--"), ("#8a8a8a", "^", "-."), ("#3d3d3d", "D", ":"),
    ("#757575", "v", "-"), ("#1a1a1a", "P", "--"),
)  # fmt: skip


def context_look(index: int) -> tuple[str, str, str]:
    """(colour, marker, dash) of the design's context of this number."""
    return _CONTEXTS[index % len(_CONTEXTS)]


def look() -> matplotlib.RcParams:
    """Context manager under which a figure is drawn and saved."""
    return matplotlib.rc_context({**matplotlib.rcParamsDefault, **_RC, "backend": "agg"})


def mode_look(mode: str) -> tuple[str, str]:
    """(colour, marker) of a mode: the same in every figure, whatever else is shown."""
    if mode in _STANDARD:
        index = _STANDARD.index(mode)
        return _COLOURS[index % len(_COLOURS)], _MARKERS[index // len(_COLOURS)]
    code = zlib.crc32(mode.encode())
    return _COLOURS[code % len(_COLOURS)], _MARKERS[2 + code // 64 % (len(_MARKERS) - 2)]


@functools.cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width in inches of one line set in the figures' font; in a PNG hinting makes it wider."""
    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    # Measured large, where hinting moves nothing.
    font.set_size(100, 72)
    font.set_text(text)
    return 1.02 * font.get_width_height()[0] / 64 / 72 * size / 100


def wrap(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """Lines of at most `width` inches, broken at plain spaces; a no-break space holds.

    A word that is longer than a line, as a mode's name may be, is broken where the line ends.
    """
    lines: list[str] = []
    words = [part for word in text.split(" ") for part in _pieces(word, width, size, weight)]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, weight) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _pieces(word: str, width: float, size: float, weight: str) -> list[str]:
    pieces = []
    while word:
        fits = len(word)
        while fits > 1 and text_width(word[:fits], size, weight) > width:
            fits -= 1
        pieces.append(word[:fits])
        word = word[fits:]
    return pieces


def printable(name: str, slug: str, width: float, size: float = LABEL_PT) -> str:
    """A family's own name if the font has its letters, else its slug; cut to `width` inches."""
    name = " ".join(name.split())
    glyphs = get_font(findfont("DejaVu Sans"))
    if not name or not all(glyphs.get_char_index(ord(letter)) for letter in name):
        name = slug
    if text_width(name, size) <= width:
        return name
    while name and text_width(name + "…", size) > width:
        name = name[:-1]
    return name + "…"


def save(figure: Figure, *paths: str | Path | None) -> None:
    """Write the figure in the format of each path's suffix (svg or png); None is skipped."""
    for path in filter(None, paths):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".svg":
            metadata: dict[str, None] = {"Date": None, "Creator": None}
        else:
            metadata = {"Software": None}
        figure.savefig(path, dpi=200, metadata=metadata, facecolor="white")


def head(ax: Axes, text: str) -> None:
    """The heading of a panel, each line cut to the panel's width."""
    width = ax.get_position().width * ax.figure.get_figwidth()
    # Bold letters are wider than those that `printable` measures.
    lines = [printable(line, line, width / 1.12, LABEL_PT + 0.5) for line in text.split("\n")]
    ax.set_title("\n".join(lines), fontsize=LABEL_PT + 0.5, weight="bold", loc="left", pad=5)
