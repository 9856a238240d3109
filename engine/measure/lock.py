"""One measurement at a time on a machine, across clones and users."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator

# A read-only lock needs something that exists on every Linux machine, that all users can open, and
# that nobody replaces or cleans up: the root folder. Tests name another one.
_LOCK_FILE = os.environ.get("SPECSCALE_LOCK_FILE", "/")


@contextlib.contextmanager
def machine_lock() -> Iterator[int]:
    """Hold the machine for one measurement; yields the descriptor to hand to a child.

    The lock is released when every process that inherited the descriptor is gone, also if the
    holder was killed. Raises OSError if the lock file cannot be opened.
    """
    descriptor = os.open(_LOCK_FILE, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting: another measurement runs on this machine", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
