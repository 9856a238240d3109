import json
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(workflow.basedir).parent
# An editable install may point to another clone; this workflow runs the engine beside it, with
# the interpreter that runs Snakemake.
sys.path.insert(0, str(ROOT))
os.environ.update(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.getenv('PATH')}")

from engine import composition
from engine.design import parse_design
from engine.figures import catalogue
from engine.strict import DesignError
from engine.preparation.checks import InputFault, check_prompt_files
from engine.preparation.files import read_json, write_json
from engine.progress import plan_progress
from engine.references import record as references
from engine.yaml_file import read_yaml

if Path.cwd() != ROOT:
    sys.exit(f"error: start snakemake in the repository's folder: cd {ROOT}")

try:
    for file in workflow.configfiles:
        read_yaml(file)  # Snakemake has read it, but of a key that stands twice it keeps the last
    DESIGN = parse_design(config)
    check_prompt_files(DESIGN, ROOT)
except (DesignError, InputFault) as error:
    sys.exit(f"error: {error}")

RESULTS = f"results/{DESIGN.design}"
REPORTS = f"reports/{DESIGN.design}"
LOGS = f"logs/{DESIGN.design}"
# Written before the first job of every run. Rules take it as a parameter, not as an input: of the
# design, a cell depends on its own values only.
DESIGN_FILE = f"{RESULTS}/design.json"

# Rows of other machines that git keeps; they are nobody's output, so nothing here remakes them.
REFERENCES, _UNREADABLE = references.records(ROOT)
LENT = references.lent(DESIGN, REFERENCES)
for fault in _UNREADABLE:
    print(f"note: {fault}", file=sys.stderr)

# Above every cell, so that preparation never splits a block.
BEFORE_CELLS = 1_000_000


# In the order of the ladder; evidence/smoke.py holds them, which imports torch.
SMOKE_RUNGS = ["environment", "plain", "rollback", "tokens", "pair"]
SMOKE_CONTEXT = DESIGN.contexts[0]
SMOKE_FAMILY = next(iter(DESIGN.family_slugs))


wildcard_constraints:
    context="|".join(str(context) for context in DESIGN.contexts),
    family="|".join(DESIGN.family_slugs),
    mode="|".join(DESIGN.modes),
    replicate=r"\d+",


def get_cell_files():
    """Files of all cells, in the planned order."""
    return [cell.path for cell in DESIGN.cells()]


def get_prompt_files():
    return [
        f"{RESULTS}/prompts/{context}/{family}.json"
        for context in DESIGN.contexts
        for family in DESIGN.family_slugs
    ]


def get_source_texts(wildcards):
    """Files that prompts are made of; a missing one is reported by the rule that reads it."""
    path = Path(DESIGN.prompts.path)
    if DESIGN.prompts.source == "synthetic":
        return []
    if DESIGN.prompts.source == "packaged":
        return sorted(str(p) for p in path.iterdir()) if path.is_dir() else []
    return [str(path)] if path.is_file() else []


def get_cell(wildcards):
    return DESIGN.cell(wildcards.context, wildcards.family, wildcards.mode, wildcards.replicate)


def get_mode_core(name):
    """Code that decoding in a mode executes."""
    mode = DESIGN.modes[name]
    files = [
        *composition.core_files(),
        *composition.mode_files(mode.drafter, mode.runtime, mode.policy),
    ]
    return [str(path.relative_to(ROOT)) for path in files]


def get_cell_core(wildcards):
    """Code that the cell executes: an edit there, and only there, measures it again."""
    return get_mode_core(wildcards.mode)


def get_model_files(wildcards):
    """Files of models that lie in folders of the user's, the shipped draft among them."""
    models = [model for model in (DESIGN.models.target, DESIGN.models.draft) if model]
    folders = [Path(m.path) for m in models if m.source in ("folder", "student")]
    return sorted(
        str(file)
        for folder in folders
        for pattern in ("*.safetensors", "config.json", "tokenizer.json")
        for file in folder.glob(pattern)
    )


def get_ranking(vocabulary):
    """The list that a trimmed draft head is cut by, where it lies in a folder of the user's."""
    draft = DESIGN.models.draft
    if not vocabulary or draft.source not in ("folder", "student"):
        return []
    return [f"{draft.path}/{composition.RANKING}"]


def get_decoding_core(*files):
    """Code that decides tokens, with files of the evidence that is made of them, untimed."""
    decoding = {path for name in DESIGN.baselines for path in get_mode_core(name)}
    return [*get_files(*files), *sorted(decoding)]


def get_cell_ranking(wildcards):
    return get_ranking(DESIGN.modes[wildcards.mode].draft_vocabulary)


def get_resolved_cell(wildcards):
    return json.dumps(DESIGN.resolved_cell(get_cell(wildcards)), sort_keys=True)


def get_cell_priority(wildcards):
    """Earlier cells first, all below preparation and above what only reads tables."""
    return BEFORE_CELLS - 1 - 2 * get_cell(wildcards).order_index


def get_component_files():
    return [DESIGN.component_path(*place) for place in DESIGN.component_places()]


def get_component_core(wildcards):
    """Code that a component cell executes, whatever mode of the study uses its times."""
    runtime = DESIGN.modes[wildcards.mode].runtime
    own = ["evidence/components.py", "evidence/component_cell.py"]
    files = [*composition.core_files(), *composition.mode_files("model", runtime)]
    return [*get_files(*own), *(str(path.relative_to(ROOT)) for path in files)]


def get_component_cell(wildcards):
    places = (wildcards.context, wildcards.family, wildcards.mode)
    limits = {"most": DESIGN.components.most, "repeats": DESIGN.components.repeats}
    return json.dumps(DESIGN.component_cell(*places) | limits, sort_keys=True)


def get_component_priority(wildcards):
    """Right behind the last block of its prompt, in the same minutes and in no block's way."""
    here = (wildcards.context, wildcards.family)
    last = max(c.order_index for c in DESIGN.cells() if (c.context, c.family) == here)
    return BEFORE_CELLS - 2 - 2 * last


def get_distribution_file():
    """What check_distribution finds, if a mode of the design samples."""
    return [f"{RESULTS}/distribution.parquet"] if DESIGN.drawing_modes() else []


def get_drawing_core():
    """The code that draws and judges tokens, whatever drafts and runs around it."""
    folder = "decoding/sampling"
    return [*get_modules(folder), *get_files("decoding/acceptance.py")]


def get_all_cores(wildcards):
    """Nothing may run beside a measurement, whatever --cores says."""
    return workflow.cores or 1


def get_modules(*folders):
    """Files of the engine's folders that no cell executes: code and templates."""
    return sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / "engine" / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def get_figures(suffix):
    """Mechanism figures that the design's modes can fill."""
    return [f"{REPORTS}/figures/{entry.name}.{suffix}" for entry in catalogue.wanted(DESIGN)]


def get_figure_tables(wildcards):
    return [f"{RESULTS}/{table}.parquet" for table in catalogue.named(wildcards.figure).tables]


def get_figure_caption(wildcards):
    return catalogue.named(wildcards.figure).caption


def get_lent_figures(suffix):
    """Figures that need a GPU, which this design has not, from the rows of a reference."""
    return [f"{REPORTS}/figures/{name}.{suffix}" for name in LENT]


def get_lent_record(wildcards):
    return str(LENT[wildcards.figure].path.relative_to(ROOT))


def get_lent_files(wildcards):
    """What a figure of a reference is drawn from, beside its record."""
    record = LENT[wildcards.figure]
    files = (record.rows_path, record.verdict_path)
    return [str(path.relative_to(ROOT)) for path in files if path.is_file()]


def get_lent_chains():
    """Records of references whose published numbers stand beside this design's."""
    found = references.lent_chains(DESIGN, REFERENCES)
    return [str(record.path.relative_to(ROOT)) for record in found]


def get_trace_file():
    """Where the draft's tokens stand in the target's list, if the design's figures show it."""
    tables = {table for entry in catalogue.wanted(DESIGN) for table in entry.tables}
    return [f"{RESULTS}/trace.parquet"] if "trace" in tables else []


def get_designed_files():
    """Whether a synthetic pair did what it was designed to do; a real one has no design."""
    drafts = DESIGN.prompts.source == "synthetic" and DESIGN.models.draft
    return [f"{RESULTS}/designed.parquet"] if drafts else []


def get_files(*names):
    """Files of the engine, as inputs."""
    return [f"engine/{name}" for name in names]


def get_rung_before(wildcards):
    """The rung that this one stands on; none for the first."""
    index = SMOKE_RUNGS.index(wildcards.rung)
    return [f"{RESULTS}/smoke/{SMOKE_RUNGS[index - 1]}.json"] if index else []


def get_overrides():
    """Keys given with --config, as the user wrote them."""
    given = workflow.config_settings.config or {}
    return [f"{key}={value}" for key, value in given.items()]


def get_config_argument():
    """What a command in a message needs so that it means this design."""
    files, keys = workflow.overwrite_configfiles, get_overrides()
    words = ["--configfile", *map(str, files)] if files else []
    return shlex.join([*words, "--config", *keys] if keys else words)


def write_design():
    try:
        write_json(DESIGN.model_dump(mode="json"), DESIGN_FILE)
    except OSError as error:
        sys.exit(f"error: cannot write {DESIGN_FILE}: {error.strerror}")


def announce_cells():
    """Tell the cells how many they are, for the line that each prints."""
    pending = [
        get_cell(job.wildcards).order_index
        for job in workflow.dag.needrun_jobs()
        if job.rule.name == "time_cell"
    ]
    plan_progress(pending, Path(f"{RESULTS}/progress.json"))


def start_fork_server():
    """Cells are forked from one process that has imported torch, if any are to be measured."""
    rules = {job.rule.name for job in workflow.dag.needrun_jobs()}
    # A rule's own environment has another interpreter and another torch than this process.
    own_environments = workflow.deployment_settings.deployment_method
    if rules & {"time_cell", "time_components"} and not own_environments:
        from engine.measure.child import thread_settings
        from engine.measure.forkserver import start_server

        # Not the inherited id, if an outer workflow started this one.
        start_server(thread_settings(DESIGN.cpu_threads), workflow=os.getpid())


def look_at_jobs_only_when_one_ends():
    # With its limit of jobs a second, which nothing here needs, Snakemake looks at all waiting jobs
    # again every second, once for every job that it has started: after a hundred cells that takes
    # half a core, beside a measurement.
    workflow.scheduler.job_rate_limiter = None


def print_verdict():
    """After a run that judged; another run would show an old verdict as its own."""
    judged = any(job.rule.name == "estimate_speedup" for job in workflow.dag.finished_jobs)
    if judged:
        from engine.analysis.verdict import verdict_lines

        print("\n".join(verdict_lines(read_json(f"{REPORTS}/verdict.json"))), file=sys.stderr)
        print(f"report: {REPORTS}/report.html", file=sys.stderr)


# A cell stops when the workflow that asked for it is gone, however it ended.
os.environ.setdefault("SPECSCALE_WORKFLOW_PID", str(os.getpid()))

print(DESIGN.plan_line(), file=sys.stderr)
if len(DESIGN.families) < DESIGN.inference.student_t_from:
    print(
        f"note: a verdict needs at least {DESIGN.inference.student_t_from} families; this design"
        f" has {len(DESIGN.families)}, so it will be NOT JUDGED",
        file=sys.stderr,
    )
