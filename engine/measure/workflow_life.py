"""Work that nobody waits for any more must end: the workflow may be killed without a word."""

from __future__ import annotations

import os
import select
import sys
import threading


def workflow_pidfd() -> int | None:
    """A descriptor that becomes readable when the workflow ends; None outside a workflow.

    Exits with a sentence if the workflow has ended already.
    """
    pid = os.environ.get("SPECSCALE_WORKFLOW_PID", "")
    if not pid.isdigit():
        return None
    try:
        return os.pidfd_open(int(pid))
    except ProcessLookupError:
        sys.exit("the workflow that asked for this is gone; nothing was run")


def end_with_workflow() -> None:
    """From now on, end this process when the workflow ends."""
    descriptor = workflow_pidfd()
    if descriptor is None:
        return

    def watch() -> None:
        select.select([descriptor], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
