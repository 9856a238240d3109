"""The fork server: a process of its own for every cell, and none that outlives who asked."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.composition import ROOT
from engine.measure.forkserver import CELL_NAME, ForkServer, start_server

pytestmark = pytest.mark.timeout(120)

# Stands in for the measuring module: it does what its standard input says.
_MODULE = "tests.obedient"


@pytest.fixture
def server(monkeypatch):
    """A server that ends when its stand-in workflow does; yields that workflow."""
    workflow = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setenv("SPECSCALE_FORKSERVER", "")
    start_server({"SPECSCALE_PLANTED": "yes"}, workflow.pid)
    yield workflow
    workflow.kill()
    workflow.wait()


class Child:
    def __init__(self, folder, orders: str):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "stdin").write_text(orders, encoding="utf-8")
        stdin = os.open(folder / "stdin", os.O_RDONLY)
        stderr = os.open(folder / "stderr", os.O_RDWR | os.O_CREAT)
        self.held = os.open(folder / "stdin", os.O_RDONLY)
        fcntl.flock(self.held, fcntl.LOCK_EX)
        self.server = ForkServer.connect()
        self.process = self.server.fork(_MODULE, self.held, stdin, stderr)
        os.close(stdin)
        os.close(stderr)

    def said(self) -> str:
        return (self.folder / "stderr").read_text(encoding="utf-8")

    def lock_is_free(self) -> bool:
        other = os.open(self.folder / "stdin", os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(other)
        return True


def gone(pid: int, within: float = 20) -> bool:
    """Whether a process has ended, perhaps not yet collected by its parent."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except FileNotFoundError:
            return True
        if state.split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_each_process_is_its_own_and_finds_torch_imported(server, tmp_path):
    one, two = (
        Child(tmp_path / name, "print(os.getpid(), os.getppid(), 'torch' in sys.modules, "
              "os.environ['SPECSCALE_PLANTED'], open('/proc/self/comm').read(), file=sys.stderr)")
        for name in ("one", "two")
    )  # fmt: skip
    assert [one.process.wait(), two.process.wait()] == [0, 0]
    words = [child.said().split() for child in (one, two)]
    assert words[0][0] != words[1][0]
    for child, word in zip((one, two), words, strict=True):
        assert word == [str(child.process.pid), str(child.server.pid), "True", "yes", CELL_NAME]


@pytest.mark.parametrize(
    ("orders", "status", "words"),
    [
        ("sys.exit(86)", 86, ""),
        ("sys.exit('a sentence')", 1, "a sentence"),
        ("raise ValueError('planted')", 1, "ValueError: planted"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
    ],
)
def test_how_a_process_ends_is_told(server, tmp_path, orders, status, words):
    child = Child(tmp_path, orders)
    assert child.process.wait() == status
    assert words in child.said()


def test_clients_that_say_nothing_or_nonsense_cost_nobody_else(server, tmp_path):
    for request in (b"", b"tests.obedient"):  # the second without its descriptors
        stranger = ForkServer.connect()
        if request:
            stranger._connection.sendall(request)
        stranger._connection.close()
    child = Child(tmp_path, "sys.exit(3)")
    assert child.process.wait() == 3


def test_a_server_that_is_killed_takes_its_process_along(server, tmp_path):
    child = Child(
        tmp_path,
        "from engine.measure.job import die_with_parent\n"
        "die_with_parent(os.getppid()); time.sleep(600)",
    )
    time.sleep(0.5)
    os.kill(child.server.pid, signal.SIGKILL)
    assert child.process.wait() == -signal.SIGKILL
    assert gone(child.process.pid)
    assert ForkServer.connect() is None


def test_a_process_holds_the_lock_and_dies_with_who_asked(server, tmp_path):
    child = Child(tmp_path, "time.sleep(600)")
    os.close(child.held)
    assert not child.lock_is_free()
    child.process._connection.shutdown(2)
    assert gone(child.process.pid)
    assert child.lock_is_free()


def test_the_server_and_its_processes_end_with_the_workflow(server, tmp_path):
    child = Child(
        tmp_path,
        "from engine.measure.job import die_with_parent\n"
        "die_with_parent(os.getppid()); time.sleep(600)",
    )
    time.sleep(0.5)
    server.kill()
    server.wait()
    assert gone(child.server.pid)
    assert gone(child.process.pid)
    assert child.process.wait() == -signal.SIGKILL
    assert ForkServer.connect() is None


def test_without_a_server_there_is_none(monkeypatch):
    monkeypatch.delenv("SPECSCALE_FORKSERVER", raising=False)
    assert ForkServer.connect() is None
    monkeypatch.setenv("SPECSCALE_FORKSERVER", "specscale-nobody")
    assert ForkServer.connect() is None
    assert (ROOT / "tests" / "obedient.py").is_file()
