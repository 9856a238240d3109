"""Studies of a made-up GPU as they come from elsewhere, and a reference made of one in part."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from engine.composition import ROOT
from engine.measure.rows import write_rows
from engine.preparation.freeze import freeze
from engine.references.publish import publish
from tests.synthetic_mechanism import SPEEDS, mechanism_design, modes
from tests.synthetic_rows import FAMILIES, study

PUBLISHED = ROOT / "config" / "published.csv"
NAMES = ("ar", "ar_device", "spec", "phase_o", "ar_graph", "graph", "graph_draft")


def gpu_design(**changes):
    kept = {name: mode for name, mode in modes().items() if name in NAMES}
    plan = {"contexts": [2048], "families": FAMILIES[:4], "modes": kept, "components": None}
    return mechanism_design(**{**plan, "claims": [], "replicates": [2, 1], **changes})


def write_archive(folder: Path, design, **made) -> Path:
    """`results/{design}` as it comes from another machine."""
    results = folder / design.design
    cells = defaultdict(list)
    for row in study(design, ratio=lambda cell: SPEEDS.get(cell.mode, 1.0), spread=0.02, **made):
        cells[row["context"], row["family"], row["mode"], row["replicate"]].append(row)
    for cell in design.cells():
        rows = cells[cell.context, cell.family, cell.mode, cell.replicate]
        write_rows(rows, results / Path(cell.path).relative_to(f"results/{design.design}"))
    freeze(design, [], results / "frozen.json")
    return results


def counted(row):
    """Graphs and synchronisations, as a GPU's rows have them."""
    if row["runtime"].startswith("graph"):
        row = {**row, "graphs_captured": 4, "graphs_planned": 4, "graph_pool_bytes": 20 << 20}
    syncs = (8, 2)[row["runtime"] != "eager"] * (row["rounds"] or 0)
    return {**row, "host_syncs": syncs, "dirty": True}


def published_in_part(folder: Path) -> tuple[Path, Path, list[str]]:
    """(a repository's root with a published reference, of a design measured in part; the study's
    folder; what was said).
    """
    results = write_archive(folder, gpu_design(), alter=counted)
    # What a run leaves that was stopped: one block in part, one not begun.
    (results / "timing/2048/fiction/graph/r1.parquet").unlink()
    for path in (results / "timing/2048/email").glob("*/r1.parquet"):
        path.unlink()
    root = folder / "root"
    return root, results, publish(results, root, PUBLISHED)
