"""Bad input gets one plain sentence and a non-zero exit before any cell starts."""

import errno
import json
import shutil

import pandas as pd
import pytest

from engine import __main__ as cli
from engine.design import load_design, parse_design
from engine.preparation import checks
from engine.preparation.files import DamagedFile, read_json
from engine.strict import DesignError
from engine.tables import read_frame, write_frame
from tests.workspace import ROOT, Workspace

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("bad"), contexts=[512], replicates=[1])


def default_design(**changes):
    data = json.loads(load_design(ROOT / "config" / "config.yaml").to_json())
    return {**data, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new_token": 5}, ["'new_token'", "unknown"]),
        ({"new_tokens": "many"}, ["'new_tokens'", "'many'"]),
        ({"device": "tpu"}, ["'device'", "'cpu'", "'cuda'"]),
        ({"design": "../up"}, ["'design'", "../up"]),
        ({"design": ""}, ["'design'"]),
        ({"design": "reference"}, ["'reference'", "choose another name"]),
        (
            {"inference": {"bootstrap_from": 3, "student_t_from": 4}},
            ["bootstrap_from (3)", "student_t_from (4)"],
        ),
        ({"families": ["news", "news"]}, ["'families'", "twice"]),
        ({"families": ["../up"]}, ["../up"]),
        ({"contexts": [16]}, ["16", "new_tokens"]),
        ({"contexts": []}, ["'contexts'"]),
        ({"contexts": ["natural"]}, ["natural", "jsonl"]),
        ({"replicates": [0]}, ["'replicates"]),
        ({"seed": 2**64}, ["'seed'"]),
        ({"time_limit_s": float("inf")}, ["'time_limit_s'"]),
        ({"device": ["cpu"]}, ["'device'"]),
        ({"design": "tiny\n"}, ["'design'"]),
        ({"families": ["  "]}, ["families"]),
        ({"gates": {"drift": 2}}, ["gates", "drift"]),
        ({"gates": {"drifting": 0.1}}, ["drifting", "unknown"]),
        ({"models": {"target": {"source": "web"}}}, ["models.target", "'web'"]),
        (
            {"models": {"target": {"source": "hub", "repo": "a/b", "revision": "main"}}},
            ["revision"],
        ),
    ],
)
def test_a_faulty_design_is_refused_with_the_key(changes, words):
    with pytest.raises(DesignError) as caught:
        parse_design(default_design(**changes))
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


_DRAFTS = {"drafter": "model", "k": 4, "round": "folded"}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ({"drafter": "oracle9"}, ["'oracle9'", "model"]),
        ({"drafter": "model", "k": 4, "round": "loop"}, ["round", "'repair'", "'folded'"]),
        ({"drafter": "model", "k": 0, "round": "repair"}, ["k of at least 1"]),
        ({"drafter": "model", "k": 4}, ["round"]),
        ({"drafter": "none", "k": 4}, ["drafter: none"]),
        ({"drafter": "model", "k": 4, "round": "folded", "baseline": "br"}, ["'br'", "ar"]),
        ({"drafter": "model", "k": 4, "round": "folded", "acceptance": "lax"}, ["'lax'", "exact"]),
        ({"drafter": "model", "k": 4, "round": "folded", "runtime": "warp"}, ["'warp'", "eager"]),
        ({"drafter": "model", "k": 4, "round": "folded", "acceptance": "relaxed"}, ["needs delta"]),
        ({"drafter": "model", "k": 4, "round": "folded", "delta": 1}, ["takes no delta"]),
        ({"drafter": "model", "k": 4, "round": "folded", "only": {"families": 0}}, ["families"]),
        ({**_DRAFTS, "policy": "bold"}, ["unknown policy 'bold'", "adaptive, confidence"]),
        ({**_DRAFTS, "policy": "confidence"}, ["policy 'confidence' needs threshold"]),
        ({**_DRAFTS, "policy": "confidence", "threshold": 1.5}, ["threshold", "1"]),
        ({**_DRAFTS, "policy": "confidence", "threshold": -0.1}, ["threshold", "0"]),
        ({**_DRAFTS, "threshold": 0.5}, ["policy 'fixed' takes no threshold"]),
        ({**_DRAFTS, "draft_window": 0}, ["draft_window", "1"]),
        ({**_DRAFTS, "draft_vocabulary": 0}, ["draft_vocabulary", "1"]),
        ({**_DRAFTS, "drafter": "ngram", "draft_window": 8}, ["has no model", "draft_window"]),
        ({**_DRAFTS, "target_cache": "lost"}, ["target_cache", "'recomputed'"]),
        ({"drafter": "none", "policy": "adaptive"}, ["drafter: none", "policy"]),
        ({**_DRAFTS, "sampling": {"temperature": -0.1}}, ["temperature", "0"]),
        ({**_DRAFTS, "sampling": {}}, ["temperature"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "top_p": 0}}, ["top_p", "0"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "top_p": 1.01}}, ["top_p", "1"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "top_k": 0}}, ["top_k", "1"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "min_p": 1}}, ["min_p", "1"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "min_p": -0.1}}, ["min_p", "0"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "repetition_penalty": 0}}, ["repetition"]),
        ({**_DRAFTS, "sampling": {"temperature": 1, "top_q": 1}}, ["top_q"]),
        ({**_DRAFTS, "draft_sampling": {"temperature": -1}}, ["draft_sampling.temperature"]),
        ({**_DRAFTS, "sampling": {"temperature": 0.7}}, ["'exact'", "coupled", "rejection"]),
        ({**_DRAFTS, "acceptance": "rejection"}, ["'rejection'", "needs sampling"]),
        ({**_DRAFTS, "acceptance": "coupled"}, ["'coupled'", "needs sampling"]),
        ({**_DRAFTS, "acceptance": "typical"}, ["needs epsilon"]),
        ({**_DRAFTS, "acceptance": "typical", "epsilon": 1}, ["epsilon"]),
        ({**_DRAFTS, "draft_sampling": {"temperature": 1}}, ["draft_sampling", "needs sampling"]),
        (
            {
                **_DRAFTS,
                "drafter": "reference",
                "acceptance": "all",
                "sampling": {"temperature": 1},
                "draft_sampling": {"temperature": 1},
            },
            ["'reference'", "leave out draft_sampling"],
        ),
        (
            {**_DRAFTS, "acceptance": "coupled", "sampling": {"temperature": 0.7}},
            ["same sampling"],
        ),
        (
            {
                "drafter": "model",
                "k": 4,
                "round": "folded",
                "runtime": "device",
                "baseline": "ar_device",
            },
            ["widen its only"],
        ),
    ],
)
def test_a_faulty_mode_is_refused_with_what_there_is(mode, words):
    data = default_design()
    data["modes"]["spec"] = {"baseline": "ar", **mode}
    with pytest.raises(DesignError) as caught:
        parse_design(data)
    for word in words:
        assert word in str(caught.value)


def test_a_part_that_is_the_whole_grid_is_the_whole_grid():
    data = default_design()
    for mode in data["modes"].values():
        mode["only"] = {"families": 8, "contexts": 2}
    design = parse_design(data)
    assert all(design.whole_grid(mode) for mode in design.modes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new_tokenz": 5}, "new_tokenz"),
        ({"modes": {"spec": {"drafter": "x", "baseline": "ar"}}}, "unknown drafter 'x'"),
        ({"design": "../tiny"}, "not a usable name"),
    ],
)
def test_the_workflow_stops_while_it_parses(workspace, changes, words):
    workspace.write_design(**{"contexts": [512], **changes})
    assert_refused(workspace, words, "-n")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"families": ["newz"]}, "unknown family 'newz'"),
        ({"contexts": [17_000]}, "exceeds the limit"),
        ({"contexts": [600_000]}, "too little text"),
        ({"contexts": [100]}, "no room for text"),
        ({"device": "cuda"}, "no NVIDIA GPU"),
        ({"cpu_threads": 200}, "cores"),
        ({"prompts": {"source": "jsonl", "path": "config/none.jsonl"}}, "none.jsonl"),
    ],
)
def test_what_needs_files_stops_before_any_cell(workspace, changes, words):
    workspace.write_design(**{"contexts": [512], "replicates": [1], **changes})
    if changes.get("device") == "cuda" and shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU, so the design is sound here")
    assert_refused(workspace, words)


def test_a_draft_that_cannot_run_stops_before_any_cell(workspace, tmp_path):
    draft = shutil.copytree(workspace.pair[1], tmp_path / "draft")
    weights = draft / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    models = {
        "target": {"source": "folder", "path": str(workspace.pair[0])},
        "draft": {"source": "folder", "path": str(draft)},
    }
    workspace.write_design(contexts=[512], models=models)
    assert_refused(workspace, "model.safetensors")


def test_a_jsonl_with_a_faulty_line_is_named(workspace):
    path = workspace.root / "config" / "mine.jsonl"
    path.write_text('{"category": "a", "turns": ["x"]}\n{"category": "a"}\n', encoding="utf-8")
    workspace.write_design(
        contexts=["natural"],
        families=["a"],
        prompts={"source": "jsonl", "path": "config/mine.jsonl"},
    )
    assert_refused(workspace, "mine.jsonl line 2")


def test_tokenizers_that_differ_stop_before_any_cell(workspace, tmp_path):
    draft = shutil.copytree(workspace.pair[1], tmp_path / "draft")
    tokenizer = json.loads((draft / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    first, second = (next(t for t, i in vocabulary.items() if i == n) for n in (50, 51))
    vocabulary[first], vocabulary[second] = 51, 50
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    models = {
        "target": {"source": "folder", "path": str(workspace.pair[0])},
        "draft": {"source": "folder", "path": str(draft)},
    }
    workspace.write_design(contexts=[512], models=models)
    assert_refused(workspace, "id 50")


def test_a_key_that_stands_twice_is_refused_by_the_workflow_too(workspace):
    workspace.write_design(contexts=[512])
    file = workspace.config
    file.write_text(file.read_text(encoding="utf-8") + "\nseed: 2\n", encoding="utf-8")
    assert_refused(workspace, "'seed' is there twice", "-n")


def test_a_full_disk_is_one_sentence(monkeypatch, capsys, tmp_path):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(checks.InputFault, match="nearly full"):
        checks.check_disk(tmp_path)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", "rows.parquet")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert "the disk is full, at rows.parquet" in str(stopped.value)


def test_a_full_disk_below_the_project_is_named(monkeypatch, tmp_path):
    """A write that fails does not say which file it was, and results may be a disk of their own."""
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    room = {"results": 0}
    monkeypatch.setattr(
        cli.shutil,
        "disk_usage",
        lambda folder: type("Usage", (), {"free": room.get(folder.name, 10**9)}),
    )

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert f"the disk is full, probably under {tmp_path / 'results'};" in str(stopped.value)


def test_a_full_disk_that_an_argument_names_is_found(monkeypatch, tmp_path):
    """Results of another machine are unpacked anywhere, on any disk."""
    (tmp_path / "small").mkdir()
    words = ["engine", "unpack-reference", "a.json", str(tmp_path / "small" / "x")]
    monkeypatch.setattr(cli.sys, "argv", words)
    room = {"small": 0}
    monkeypatch.setattr(
        cli.shutil,
        "disk_usage",
        lambda folder: type("Usage", (), {"free": room.get(folder.name, 10**9)}),
    )
    assert cli._fullest() == tmp_path / "small"


_DESIGN = ["--design", "config/config.yaml"]
_FIGURE = ["--published", "config/published.csv", "--svg", "f.svg", "--png", "f.png",
           "--output", "f.json"]  # fmt: skip
_PROMPT = ["--models", "m.json", "--output", "p.json"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build-prompt", *_DESIGN, *_PROMPT, "--context", "256", "--family", "nope"],
         "no family 'nope'; it has news, "),
        (["build-prompt", *_DESIGN, *_PROMPT, "--context", "nope", "--family", "news"],
         "no context 'nope'; it has 256, "),
        (["build-prompt", *_DESIGN, *_PROMPT, "--context", "a\nb", "--family", "news"],
         "no context 'a"),
        (["climb-rung", *_DESIGN, *_PROMPT, "--prompt", "p.json", "--rung", "nope"],
         "no rung 'nope'; the ladder has environment, plain"),
        (["time-components", *_DESIGN, *_PROMPT, "--prompt", "p.json", "--context", "256",
          "--family", "news", "--mode", "spec"], "no components of 'spec'"),
        (["plot-reference", "--figure", "nope", "--reference", "faster", *_FIGURE],
         "no figure 'nope'; there is chain"),
        (["plot-reference", "--figure", "waterfall", "--reference", "faster", *_FIGURE],
         "'waterfall' is not lent"),
        (["plot-reference", "--figure", "chain", "--reference", "nothere.json", *_FIGURE],
         "there is no reference nothere.json; name a record"),
        (["unpack-reference", "nothere.json", "folder"], "there is no reference nothere.json"),
        (["freeze-design", *_DESIGN, "--output", "f.json", "--overrides", "nope"],
         "write a JSON list of texts"),
        (["freeze-design", *_DESIGN, "--output", "f.json", "--overrides", "[1]"],
         "write a JSON list of texts"),
        (["check-designed", *_DESIGN, "--rows", "r", "--trace", "t", "--output", "d"],
         "has a pair that nobody designed"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_one_sentence_and_writes_nothing(monkeypatch, tmp_path, words, said):
    record = str(ROOT / "results" / "reference" / "faster.json")
    words = [record if word == "faster" else word for word in words]
    words = [str(ROOT / word) if word.startswith("config/") else word for word in words]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.sys, "argv", ["engine", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert said in str(stopped.value)
    assert len(str(stopped.value).splitlines()) == 1
    assert "unexpected" not in str(stopped.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['{"a": ', "", "\0", "[" * 100_000])
def test_a_damaged_file_between_rules_is_named(tmp_path, text):
    path = tmp_path / "models.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DamagedFile, match=r"models.json is damaged: delete it"):
        read_json(path)


def test_a_damaged_table_is_named_wherever_the_damage_is(tmp_path):
    path = tmp_path / "chain.parquet"
    write_frame(pd.DataFrame({"text": [str(n) for n in range(5000)]}), path)
    whole = path.read_bytes()
    # Cut short; a page that cannot be decoded; nothing of a table.
    turned = bytes(byte ^ 0xA5 for byte in whole[4:2000])
    for damaged in (whole[:-10], whole[:4] + turned + whole[2000:], b"", b"PAR1" * 3):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"chain.parquet is damaged: delete it"):
            read_frame(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_frame(path)


def assert_refused(workspace, words, *arguments):
    result = workspace.snakemake(*arguments, check=False)
    printed = result.stdout + result.stderr
    assert result.returncode != 0, printed
    assert words in printed
    assert "Traceback" not in printed
    assert not list((workspace.root / "results").rglob("timing/**/*.parquet"))
