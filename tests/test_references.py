"""Published references: whole blocks only, labelled wherever drawn, and drawn where no GPU is."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.analysis.divergence import distinct_outputs
from engine.analysis.tokens import compare_tokens
from engine.figures import catalogue
from engine.preparation.files import read_json, write_json
from engine.preparation.freeze import freeze
from engine.references import publish as publishing
from engine.references.pages import draw_lent, lent_chain
from engine.references.publish import publish
from engine.references.record import (
    ReferenceFault,
    lent,
    lent_chains,
    read_record,
    records,
    seal,
)
from engine.references.study import as_rows, frozen_study, older_modes, read_reference
from engine.report.evidence import gather
from engine.tables import write_frame
from tests.reference_archives import (
    NAMES,
    PUBLISHED,
    gpu_design,
    published_in_part,
    write_archive,
)
from tests.synthetic_mechanism import modes
from tests.synthetic_rows import FAMILIES, small_design
from tests.workspace import Workspace

TRACEBACK = "Traceback:\n  File /home/someone/engine.py\nRuntimeError: it broke"


def cpu_design():
    return small_design(contexts=[256], families=FAMILIES[:4], modes=modes({"families": 2}))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return published_in_part(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def record(place):
    return read_record(place[0] / "results/reference/made-up.json")


def test_only_whole_blocks_are_published_and_the_others_named(place, record):
    root, _, said = place
    rows = read_reference(record)
    assert record.blocks == {"whole": 6, "planned": 8, "left_out": ["2048/fiction/r1"]}
    assert set(rows["block"]) == {
        f"2048/{family}/r{r}" for family in FAMILIES[:4] for r in (0, 1)
    } - {"2048/fiction/r1", "2048/email/r1"}
    assert "left out, measured in part: 2048/fiction/r1" in said
    assert "6 of 8 blocks" in record.label()
    page = (root / "reports/reference/made-up/report.html").read_text(encoding="utf-8")
    assert "6 of 8 blocks. Order blocks that were not measured whole" in " ".join(page.split())


def test_the_record_says_where_the_rows_come_from_and_no_more(place, record):
    rows = pd.DataFrame(read_reference(record))
    assert record.label() == (
        "Reference rows, design made-up: Made-up GPU, 2026-01-05, commit ccccccc with uncommitted "
        "changes, synthetic, 6 of 8 blocks"
    )
    wanted = {"driver": "999.9", "torch": "2.9.0", "cuda": "12.8", "python": "3.11.7"}
    assert {name: record.measured[name] for name in wanted} == wanted
    # Not of this repository, so its version is not known.
    assert record.measured["specscale"] is None
    assert "GPU-made-up" not in set(rows["device_uuid"])
    assert record.measured["device_uuid_sha256"] == rows["device_uuid"].iloc[0]
    verdict = read_json(record.verdict_path)
    assert verdict["reference"]["label"] == record.label()
    assert (verdict["reference"]["blocks"], verdict["reference"]["blocks_planned"]) == (6, 8)


def test_a_published_reference_is_small_and_is_not_replaced_unasked(place):
    root, results, _ = place
    sizes = sum(f.stat().st_size for f in (root / "reports/reference").rglob("*") if f.is_file())
    assert sizes < 2_000_000
    before = (root / "results/reference/made-up.json").read_bytes()
    with pytest.raises(ReferenceFault, match="is there already; add --force"):
        publish(results, root, PUBLISHED)
    assert (root / "results/reference/made-up.json").read_bytes() == before


def test_with_force_all_of_it_is_replaced(tmp_path, monkeypatch):
    def draw(done, folder):
        folder.mkdir()
        write_json({"rows": len(done.rows)}, folder / f"{len(done.rows)}.json")
        write_json(done.study.verdict, folder / "verdict.json")

    monkeypatch.setattr(publishing, "draw_all", draw)
    part = {name: modes()[name] for name in ("ar", "spec")}
    design = gpu_design(families=FAMILIES[:2], modes=part, replicates=[1], instrumented=[1])
    results, root = write_archive(tmp_path, design), tmp_path / "root"
    publish(results, root, PUBLISHED)
    shutil.rmtree(results / "timing/2048/dialogue")
    publish(results, root, PUBLISHED, force=True)
    left = {path.name for path in (root / "reports/reference/made-up").iterdir()}
    assert left == {"6.json", "verdict.json"}
    assert read_record(root / "results/reference/made-up.json").blocks["whole"] == 1


def test_references_that_are_too_large_together_are_refused_and_leave_nothing(
    place, tmp_path, monkeypatch
):
    monkeypatch.setattr(publishing, "ROWS_MOST", 10_000)
    with pytest.raises(ReferenceFault, match=r"would take 0\.\d MB of results/reference") as caught:
        publish(place[1], tmp_path, PUBLISHED)
    assert len(str(caught.value).splitlines()) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("figure", ["chain", "phase_o", "cuda_graph"])
def test_a_cpu_design_draws_what_needs_a_gpu_from_the_reference(place, record, tmp_path, figure):
    design = cpu_design()
    found, faults = records(place[0])
    assert (list(lent(design, found)), faults) == (["chain", "phase_o", "cuda_graph"], [])
    files = [tmp_path / f"{figure}.{end}" for end in ("svg", "png")]
    told = draw_lent(figure, lent(design, found)[figure], pd.read_csv(PUBLISHED), *files)
    assert all(path.stat().st_size > 10_000 for path in files)
    assert told["missing"] == ""
    assert told["synthetic"]
    assert told["origin"] == record.label()
    shown = {exhibit.name: exhibit for exhibit in gather(design, {figure: told})}[figure]
    assert (shown.missing, shown.origin) == ("", record.label())


def test_the_numbers_of_a_reference_stand_beside_a_cpu_design(place):
    (found,) = lent_chains(cpu_design(), records(place[0])[0])
    chain = lent_chain(found)
    rows = {row["quantity"]: row for row in chain.rows}
    assert chain.synthetic
    assert chain.label == found.label()
    assert {"spec_ratio", "phase_o_syncs_after", "graph_draft_local_speedup"} <= set(rows)
    assert rows["phase_o_syncs_after"]["sentence"].endswith("published 2, measured 2: held")
    assert rows["spec_ratio"]["low"] is not None


def test_the_workflow_draws_them_and_only_while_they_are_there(place, tmp_path):
    part = {name: modes({"families": 1})[name] for name in ("ar_device", "phase_o")}
    workspace = Workspace(tmp_path, contexts=[512], modes={**tiny_modes(), **part})
    shutil.copytree(place[0], workspace.root, dirs_exist_ok=True)
    assert workspace.planned()["plot_reference"] == 3
    shutil.rmtree(workspace.root / "results/reference")
    assert "plot_reference" not in workspace.planned()


def tiny_modes():
    return {name: modes()[name] for name in ("ar", "spec")}


def test_without_a_reference_or_a_wish_for_one_the_message_stays(place):
    assert lent(cpu_design(), []) == {}
    found = records(place[0])[0]
    # Neither a design whose modes all run here, nor one that has the GPU.
    assert lent(small_design(), found) == {}
    assert lent(gpu_design(), found) == {}
    missing = {exhibit.name: exhibit.missing for exhibit in gather(cpu_design(), {})}
    assert missing["phase_o"].startswith("phase_o needs a GPU")
    for entry in catalogue.CATALOGUE:
        assert not entry.lent or set(entry.tables) <= {"rows", "steps", "chain"}
    assert [entry.name for entry in catalogue.CATALOGUE if entry.lent] == [
        "chain", "phase_o", "cuda_graph",
    ]  # fmt: skip


def test_rows_of_an_earlier_engine_are_called_so(place, record):
    rows = read_reference(record)
    assert older_modes(rows, record.design) == []
    rows.loc[rows["mode"] == "spec", "engine_sha256"] = "0" * 64
    rows.loc[rows["mode"] == "graph", "cell_sha256"] = "0" * 64
    older = older_modes(rows, record.design)
    assert older == ["spec", "graph"]
    assert record.label(older).endswith("an earlier version of the engine (spec, graph)")
    assert record.label(NAMES).endswith("measured by an earlier version of the engine")
    most = [name for name in NAMES if name not in ("ar_graph", "graph")]
    assert record.label(most).endswith("of the engine (all modes but ar_graph, graph)")
    # A mode without rows is neither of an earlier engine nor of this one.
    fewer = {**record.measured, "modes": [name for name in NAMES if name != "ar_graph"]}
    part = dataclasses.replace(record, measured=fewer)
    assert part.label(most).endswith("of the engine (all modes but graph)")


def test_several_commits_and_days_are_all_named(record):
    measured = {**record.measured, "git_commit": f"{'a' * 40}, {'b' * 40}", "dirty": False}
    measured["measured_to"] = "2026-01-07T10:00:00+00:00"
    label = dataclasses.replace(record, measured=measured).label()
    assert "2026-01-05 to 2026-01-07, commits aaaaaaa and bbbbbbb, synthetic" in label
    nameless = dataclasses.replace(record, measured={**measured, "git_commit": None})
    assert "commit unknown" in nameless.label()


def test_a_figure_whose_modes_have_no_rows_is_not_lent(record):
    """A design may be published before its mechanism was measured: no empty page is drawn."""
    assert set(lent(cpu_design(), [record])) >= {"phase_o", "cuda_graph"}
    without = [name for name in record.measured["modes"] if name != "phase_o"]
    less = dataclasses.replace(record, measured={**record.measured, "modes": without})
    assert "phase_o" not in lent(cpu_design(), [less])
    assert "cuda_graph" in lent(cpu_design(), [less])


@pytest.fixture
def copy_of(place, tmp_path):
    """The published reference in a root of its own."""
    shutil.copytree(place[0], tmp_path / "root")
    return tmp_path / "root"


def _fault(root: Path) -> str:
    found, (fault,) = records(root)
    assert found == []
    assert "\n" not in fault
    return fault


def test_rows_and_record_that_do_not_belong_together_are_refused(copy_of):
    rows = copy_of / "results/reference/made-up.parquet"
    rows.write_bytes(rows.read_bytes()[:-100])
    assert "does not hold the rows that made-up.json was written for" in _fault(copy_of)


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data["tables"]["chain"][0].update(value=99.9),
        lambda data: data.update(measured={}),
        lambda data: data["measured"].update(modes=["nope"]),
        lambda data: data.pop("sha256"),
    ],
)
def test_a_record_that_was_edited_lends_nothing(copy_of, edit):
    path = copy_of / "results/reference/made-up.json"
    data = read_json(path)
    edit(data)
    write_json(data, path)
    assert "publish it again" in _fault(copy_of)


@pytest.mark.parametrize(
    "measured", [{}, None, {"modes": ["nope"]}, {"modes": None}, {"modes": ["ar"]}]
)
def test_a_record_that_is_sealed_but_says_too_little_lends_nothing(copy_of, measured):
    path = copy_of / "results/reference/made-up.json"
    data = {**read_json(path), "measured": measured}
    del data["sha256"]
    write_json({**data, "sha256": seal(data)}, path)
    assert "publish it again" in _fault(copy_of)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", '"a"', "{}"])
def test_a_record_of_another_shape_is_a_sentence(copy_of, text):
    (copy_of / "results/reference/made-up.json").write_text(text, encoding="utf-8")
    assert "publish it again" in _fault(copy_of)


@pytest.mark.parametrize("text", ['{"schema_version": 4', "[]", '{"verdicts": []}'])
def test_a_verdict_that_was_edited_is_judged_again_from_the_rows(copy_of, text):
    (found,), _ = records(copy_of)
    published = pd.read_csv(PUBLISHED)
    before = frozen_study(found, published).verdict["verdicts"]
    found.verdict_path.write_text(text, encoding="utf-8")
    assert frozen_study(found, published).verdict["verdicts"] == before


def test_a_column_that_the_rows_did_not_know_is_missing_and_nothing_else(record):
    table = pq.read_table(record.rows_path)
    rows = as_rows(table.drop_columns(["kernels"]).append_column("extra", table.column("run")))
    assert rows["kernels"].isna().all()
    assert "extra" not in rows


def test_an_unreadable_record_is_told_and_skipped(tmp_path):
    folder = tmp_path / "results/reference"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_text("{", encoding="utf-8")
    write_json({"format": 99}, folder / "late.json")
    found, faults = records(tmp_path)
    assert found == []
    assert len(faults) == 2
    assert all("publish it again" in fault for fault in faults)


def _small_archive(folder: Path, **made) -> Path:
    part = {name: modes()[name] for name in ("ar", "spec")}
    return write_archive(folder, gpu_design(families=FAMILIES[:1], modes=part), **made)


@pytest.mark.parametrize("name", ["timing/2048/dialogue/spec/r0.parquet", "tokens.parquet"])
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path, name):
    results = _small_archive(tmp_path)
    damaged = results / name
    damaged.write_bytes(b"PAR1 and no more")
    with pytest.raises(ReferenceFault, match="once more") as caught:
        publish(results, tmp_path / "root", PUBLISHED)
    assert damaged.name in str(caught.value)
    assert damaged.read_bytes() == b"PAR1 and no more"
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def test_tokens_that_were_compared_in_other_rows_are_not_believed(tmp_path):
    design = gpu_design(families=FAMILIES[:1], modes={"ar": modes()["ar"], "spec": modes()["spec"]})
    results = write_archive(tmp_path, design)
    rows = pd.concat(
        pq.read_table(path).to_pandas() for path in sorted(results.rglob("timing/**/*.parquet"))
    )
    outputs = {key: found[0] for key, found in distinct_outputs(rows).items()}
    write_frame(compare_tokens(rows, outputs, design), results / "tokens.parquet")
    for path in results.rglob("spec/*.parquet"):
        table = pq.read_table(path)
        other = [[t + 1 for t in run] for run in table["tokens"].to_pylist()]
        at = table.schema.get_field_index("tokens")
        field = table.schema.field(at)
        pq.write_table(table.set_column(at, field, pa.array(other, field.type)), path)
    with pytest.raises(ReferenceFault, match="calls spec equal at 2048 dialogue, and the timing"):
        publish(results, tmp_path / "root", PUBLISHED)


def test_nothing_is_published_of_a_folder_without_a_whole_block(tmp_path):
    with pytest.raises(ReferenceFault, match="neither frozen"):
        publish(tmp_path, tmp_path / "root", PUBLISHED)
    freeze(gpu_design(), [], tmp_path / "frozen.json")
    with pytest.raises(ReferenceFault, match="no order block with all modes"):
        publish(tmp_path, tmp_path / "root", PUBLISHED)


def test_a_commit_is_taken_only_if_its_engine_measured_the_rows(tmp_path):
    """For rows of a machine without the history."""
    design = gpu_design(families=FAMILIES[:1], modes={"ar": modes()["ar"], "spec": modes()["spec"]})
    nameless = write_archive(
        tmp_path, design, alter=lambda row: {**row, "git_commit": None, "engine_sha256": "e" * 64}
    )
    with pytest.raises(ReferenceFault, match="no such commit"):
        publish(nameless, tmp_path / "root", PUBLISHED, commit="0" * 40)
    root = tmp_path / "repository"
    _commit_engine(root)
    with pytest.raises(ReferenceFault, match="not measured by the engine of that commit"):
        publish(nameless, root, PUBLISHED, commit="HEAD")
    named = write_archive(tmp_path / "named", design)
    with pytest.raises(ReferenceFault, match="the rows say that commit ccccccc"):
        publish(named, root, PUBLISHED, commit="HEAD")
    # A tree with changes says a commit that it is not; the hash says which one it became.
    changed = write_archive(
        tmp_path / "changed",
        design,
        alter=lambda row: {**row, "dirty": True, "engine_sha256": "f" * 64},
    )
    publish(changed, root, PUBLISHED, commit="HEAD")
    rows = pq.read_table(root / "results/reference" / f"{design.design}.parquet")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    assert set(rows.column("git_commit").to_pylist()) == {head.stdout.strip()}
    assert set(rows.column("dirty").to_pylist()) == {False}


def _commit_engine(root: Path) -> None:
    (root / "engine").mkdir(parents=True)
    (root / "engine/__init__.py").write_text("", encoding="utf-8")
    text = "def engine_sha256():\n    return 'f' * 64\n"
    (root / "engine/composition.py").write_text(text, encoding="utf-8")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *identity, *words], cwd=root, check=True)
