"""`python -m engine`: the subcommands of `engine/commands`, and how their faults are told."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

# Each registers its subcommands.
from engine.commands import judge, measure, prepare, references, show  # noqa: F401
from engine.commands.options import app


def main() -> None:
    """Run a subcommand; every expected fault is one sentence and a non-zero exit."""
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f"at {error.filename}" if error.filename else f"probably under {_fullest()}"
            sys.exit(f"error: the disk is full, {where}; free some space and run again")
        what = f"use {error.filename}" if error.filename else f"read or write in {Path.cwd()}"
        why = str(error.strerror or error).strip().splitlines()[0]
        sys.exit(f"error: cannot {what}: {why}")
    except Exception as error:
        if type(error).__module__.startswith("engine."):
            sys.exit(f"error: {error}")
        if os.environ.get("SPECSCALE_DEBUG"):
            raise
        first = (str(error).splitlines() or [""])[0]
        sys.exit(
            f"error: unexpected {type(error).__name__}: {first} (set SPECSCALE_DEBUG=1 for the "
            "traceback; if a file under results/ is damaged, delete it and run again)"
        )


def _fullest() -> Path:
    """Where there is least room: a failed write does not say its file, a folder may be a disk."""
    folders = [Path(name) for name in (".", "results", "reports", "logs")]
    for word in sys.argv[1:]:
        if os.sep in word:
            folders.append(next((path for path in Path(word).parents if path.is_dir()), Path()))
    there = dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir())
    return min(there, key=lambda folder: shutil.disk_usage(folder).free)


if __name__ == "__main__":
    main()
