"""One process that imports torch once, and from which every cell of a workflow is forked.

A cell is still a process of its own, with memory, threads and device context of its own; what it
shares is the imported code, which costs two seconds a process to read again. The server runs no
tensor operation, so no thread or device exists when it forks. It ends with its workflow, and a cell
ends with the process that asked for it.

A client connects to the abstract socket named in SPECSCALE_FORKSERVER and sends one message: the
module to run, with the descriptors of the machine's lock, of standard input and of standard error.
It is told the process id, and in the end the exit status.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from pathlib import Path

from engine.composition import ROOT
from engine.measure.workflow_life import workflow_pidfd

# What `ps` and `top` call a measuring process, whose command line is still the server's.
CELL_NAME = "specscale-cell"
_NAME = "SPECSCALE_FORKSERVER"
_MESSAGE = 4096
_FDS = 3


class ServerGone(OSError):
    """The server ended before it could answer."""


class ForkServer:
    """A connection to the workflow's server, good for one process; `pid` is the server's."""

    def __init__(self, connection: socket.socket):
        self._answers = _Answers(connection)
        self._connection = connection
        self.pid = self._answers.read("server")

    @classmethod
    def connect(cls) -> ForkServer | None:
        """None where there is no server, or no longer one."""
        name = os.environ.get(_NAME)
        if not name:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{name}")
            return cls(connection)
        except (OSError, ServerGone):
            connection.close()
            return None

    def fork(self, module: str, lock: int, stdin: int, stderr: int) -> ForkedProcess:
        """Have it run `python -m module` on these descriptors."""
        socket.send_fds(self._connection, [module.encode()], [lock, stdin, stderr])
        return ForkedProcess(self._connection, self._answers)


class _Answers:
    """What the server says on a connection, one JSON object a line."""

    def __init__(self, connection: socket.socket):
        self._lines = connection.makefile("r")

    def read(self, name: str) -> int:
        line = self._lines.readline()
        if not line:
            raise ServerGone("the fork server is gone")
        return json.loads(line)[name]


class ForkedProcess:
    """A measuring process that the server made for us."""

    def __init__(self, connection: socket.socket, answers: _Answers):
        self._connection = connection
        self._answers = answers
        self.pid = answers.read("pid")

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process has ended."""
        return self._connection.fileno()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Exit status; negative is the signal that ended it."""
        try:
            return self._answers.read("returncode")
        except OSError:
            return -signal.SIGKILL  # a server that is killed takes its processes with it
        finally:
            self._connection.close()


def start_server(environment: dict[str, str], workflow: int) -> None:
    """Start a server that ends with the process `workflow`, and name it to all later children."""
    name = f"specscale-{os.getpid()}-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{name}")
    listener.listen()
    subprocess.Popen(
        [sys.executable, "-m", "engine.measure.forkserver", str(listener.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[listener.fileno()],
        env={**os.environ, **environment, "SPECSCALE_WORKFLOW_PID": str(workflow)},
    )
    listener.close()
    os.environ.update({_NAME: name})


def _user(connection: socket.socket) -> int:
    """User id of the other end: abstract sockets are open to everybody on the machine."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return struct.unpack("3i", credentials)[1]


def _request(connection: socket.socket) -> tuple[bytes, list[int]]:
    """What a client asks for; nothing of one that is gone, or that keeps everybody waiting."""
    connection.settimeout(5)
    try:
        module, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, _FDS)
    except OSError:
        return b"", []
    connection.settimeout(None)
    return module, descriptors


def _say(connection: socket.socket, **answer: int) -> None:
    with contextlib.suppress(OSError):  # perhaps nobody waits for it any more
        connection.sendall(f"{json.dumps(answer)}\n".encode())


class _Server:
    def __init__(self, listener: socket.socket):
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        workflow = workflow_pidfd()
        if workflow is not None:
            self.selector.register(workflow, selectors.EVENT_READ, sys.exit)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                # What was handled before it may have ended it.
                if self.selector.get_map().get(key.fd) == key:
                    key.data()

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        if _user(connection) != os.getuid():
            connection.close()
            return
        _say(connection, server=os.getpid())
        module, descriptors = _request(connection)
        if not module or len(descriptors) != _FDS:
            for descriptor in descriptors:
                os.close(descriptor)
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._become(module.decode(), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        ended = os.pidfd_open(pid)
        _say(connection, pid=pid)

        def reap() -> None:
            for source in (ended, connection):
                with contextlib.suppress(KeyError):
                    self.selector.unregister(source)
            os.close(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            _say(connection, returncode=status)
            connection.close()

        def hung_up() -> None:
            # The client says nothing more: whatever it is, it is the end of who asked.
            self.selector.unregister(connection)
            signal.pidfd_send_signal(ended, signal.SIGKILL)

        self.selector.register(ended, selectors.EVENT_READ, reap)
        self.selector.register(connection, selectors.EVENT_READ, hung_up)

    def _become(self, module: str, descriptors: list[int]) -> None:
        """In the forked process: be `python -m module`, and never return."""
        try:
            self.selector.close()
            self.listener.close()
            _, stdin, stderr = descriptors
            Path("/proc/self/comm").write_text(CELL_NAME, encoding="utf-8")
            os.dup2(stdin, 0)
            os.dup2(stderr, 2)
            sys.argv = [module]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            os._exit(0)
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    import torch  # noqa: F401  the point of this process

    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the workflow decides when it ends
    _Server(listener).serve()


if __name__ == "__main__":
    main()
