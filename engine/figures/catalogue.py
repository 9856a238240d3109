"""The mechanism figures in the report's order: what each shows, reads, and asks of a design.

Plain data: the workflow asks while it parses, so nothing here imports pandas or matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine import composition
from engine.design import Design, DesignError
from engine.modes import Mode


@dataclass(frozen=True)
class Entry:
    """A figure; `tables` are Parquet files of the study by their stem, `lacks` says in words why
    a design cannot have it ('' if it can), and `lent` that a design without a GPU shows that of a
    reference instead, which may read no tables but `rows`, `steps` and `chain`.
    """

    name: str
    title: str
    tables: tuple[str, ...]
    caption: str
    lacks: Callable[[Design], str]
    lent: bool = False


def wanted(design: Design) -> list[Entry]:
    """The figures that the design's modes can fill, in order."""
    return [entry for entry in CATALOGUE if not entry.lacks(design)]


def lacking(design: Design) -> list[tuple[Entry, str]]:
    """The other figures, each with what is missing."""
    return [(entry, why) for entry in CATALOGUE if (why := entry.lacks(design))]


def named(name: str) -> Entry:
    """The entry of this name; DesignError if there is none."""
    if name not in _BY_NAME:
        raise DesignError(f"there is no figure {name!r}; there is {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def _here(design: Design, fits: Callable[[Mode], bool]) -> list[str]:
    """Modes with a drafter that fit and that the design's device can run."""
    return [
        name
        for name, mode in design.modes.items()
        if mode.speculative and fits(mode) and not design.not_applicable(name)
    ]


def _drafts(mode: Mode) -> bool:
    return composition.needs_draft_model(mode.drafter)


def _phase_o(design: Design) -> str:
    kept = [
        name for name, mode in design.modes.items() if mode.speculative and mode.runtime == "device"
    ]
    if not kept:
        return "no mode of the design keeps the round's decisions on the device (runtime: device)"
    why = design.not_applicable(kept[0])
    return f"{kept[0]} needs a GPU: {why}" if why else ""


def _diagnosis(design: Design) -> str:
    if design.models.target.source == "synthetic":
        return "the pair is made up, so its ranks and gaps say nothing about language"
    if not any(design.modes[name].sampling is None for name in design.baselines):
        return "no baseline of the design decodes greedily, and the trace is of a greedy text"
    drafts = design.models.draft and _here(design, _drafts)
    return "" if drafts else "no mode of the design drafts with a model"


def _relaxed(design: Design) -> str:
    if design.models.target.source == "synthetic":
        return "the pair is made up, so a gap in its logits says nothing about language"
    found = _here(design, lambda mode: mode.delta is not None)
    return "" if found else "no mode of the design accepts within a gap (acceptance: relaxed)"


def _oracles(design: Design) -> str:
    found = _here(design, lambda mode: mode.acceptance == "all" and _drafts(mode))
    return "" if found else "no mode of the design accepts all that a draft model proposes"


def _cuda_graph(design: Design) -> str:
    if not any(mode.runtime.startswith("graph") for mode in design.modes.values()):
        return "no mode of the design captures graphs (runtime: graph and its kin)"
    return "it needs a GPU: on a CPU there is nothing to capture" if design.device == "cpu" else ""


def _draft_free(design: Design) -> str:
    found = _here(design, lambda mode: mode.acceptance == "all" and not _drafts(mode))
    return "" if found else "no mode of the design replays the reference (drafter: reference)"


def _instrumented(design: Design) -> str:
    if not sum(design.instrumented_runs):
        return "no run of the design is instrumented (instrumented: [0, ...])"
    return "" if _here(design, lambda _: True) else "the design has no mode with a drafter"


def _predicted(design: Design) -> str:
    if design.component_places():
        return ""
    if design.components is None:
        return "the design times no components (components:)"
    return "no mode that runs here drafts greedily with a model on the prompts of components:"


def _sweep(design: Design) -> str:
    return "" if design.claims else "the design tests no claim of another source (claims:)"


def _break_even(design: Design) -> str:
    if missing := _instrumented(design):
        return missing
    found = _here(design, lambda mode: _drafts(mode) and mode.proposes_k)
    return "" if found else "no mode of the design drafts k tokens a round with a model"


def _memory(design: Design) -> str:
    return "" if _here(design, _drafts) else "no mode of the design holds a second model"


# Of config/published.csv.
_PUBLISHED_CONTEXTS = ("2048", "4096", "8192")


def _chain(design: Design) -> str:
    if "spec" not in design.modes or design.modes["spec"].k != 4:
        return "the design has no mode spec of the published form (k: 4)"
    at = {str(context) for context in design.contexts_of("spec")}
    return "" if at & set(_PUBLISHED_CONTEXTS) else "R was published at contexts from 2048 on only"


CATALOGUE = (
    Entry(
        "chain",
        "The published study, then and here",
        ("chain",),
        "R of each mode that was published, ours above and the published one below it, and R of "
        "whole rounds as one CUDA graph, which the published card had no memory for. Each mode "
        "is held against plain decoding with the same runtime.",
        _chain,
        lent=True,
    ),
    Entry(
        "sweep",
        "What another source claims",
        ("claims",),
        "Above, R of every mode. Below, each claim as a ratio of two modes, paired by family: the "
        "band is where the claim puts it, the diamond the source's own number. A claim held if the "
        "whole interval lies in the band, and did not if all of it lies outside.",
        _sweep,
    ),
    Entry(
        "phase_o",
        "The control plane",
        ("steps", "rows"),
        "Tokens, acceptance and trimming stay on the device, so the host waits for it less often. "
        "R before and after, each against the plain decoding of its own runtime; the share of the "
        "round's time that this saves; and the synchronisations of a round, as counted.",
        _phase_o,
        lent=True,
    ),
    Entry(
        "diagnosis",
        "What the draft gets wrong",
        ("trace",),
        "From the target's logits at every position of the reference text: how far down the "
        "target's list the draft's token stands, and by how many logits it falls short of the "
        "target's own choice. Bars span the middle half of the families.",
        _diagnosis,
    ),
    Entry(
        "relaxed",
        "Relaxed acceptance",
        (),
        "A proposal passes if its logit lies within delta of the target's best. R against delta, "
        "and the share of the text that stays as plain decoding writes it: new tokens before the "
        "first that differs, mean over families. Delta 0 is exact acceptance, but for exact ties.",
        _relaxed,
    ),
    Entry(
        "oracles",
        "If every proposal were accepted",
        (),
        "R of the modes that draft with the model: with the target's own judgement, and with all "
        "proposals accepted, without and with the bonus token. The oracles pay for their drafts "
        "as the others do; their text is not the target's.",
        _oracles,
    ),
    Entry(
        "cuda_graph",
        "CUDA graphs",
        ("rows",),
        "How many times as fast drafting and verification are as graphs, each against the same "
        "mode with the loop on the device: a proposed token's time, and a round's. What the "
        "graphs' memory pools hold, and how far one graph a position comes before memory ends. R "
        "of whole rounds as one graph, against plain decoding by graphs.",
        _cuda_graph,
        lent=True,
    ),
    Entry(
        "draft_free",
        "If drafts were perfect and free",
        ("ratios",),
        "The reference text is proposed at no cost and all of it accepted, with the bonus token. "
        "This is a diagnosis, not an algorithm: it bounds what any drafter can reach at this "
        "block length with this verification.",
        _draft_free,
    ),
    Entry(
        "waterfall",
        "Where the time goes",
        ("waterfall", "steps"),
        "log R as a product of terms, from runs that time each phase: tokens committed a round "
        "against the cost of verification, repair, drafting and control. What the phases miss and "
        "what timing them costs are bars of their own. Below, each phase against the one before.",
        _instrumented,
    ),
    Entry(
        "predicted",
        "Predicted for every block length",
        ("predicted", "compared"),
        "R for every k, from walking the acceptance trace and pricing each forward by its time "
        "alone; nothing is fitted to the measured R that stands beside it.",
        _predicted,
    ),
    Entry(
        "break_even",
        "What would have to change",
        ("ratios",),
        "R over the chance that a token is accepted and the cost of drafting a block, with the "
        "other costs of the round as measured. The bold line is R = 1; the mark is where the mode "
        "stands, its bar the middle half of the families.",
        _break_even,
    ),
    Entry(
        "memory",
        "What a second model takes",
        ("rows",),
        "Weights and caches of plain decoding and of decoding with a draft model, by context; the "
        "tick is the most that a run held at once.",
        _memory,
    ),
)  # fmt: skip
_BY_NAME = {entry.name: entry for entry in CATALOGUE}
