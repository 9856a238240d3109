"""What a mode can be composed of, read from the tree, and the files that a measurement rests on.

Drafters, policies and runtimes are one file each, so their names are the files' names: a new one
needs no registration. Nothing here imports torch; the workflow asks while it parses.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

ENGINE = Path(__file__).resolve().parent
ROOT = ENGINE.parent
_DECODING = ENGINE / "decoding"
_INCLUDE = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)
_SOURCE = re.compile(r'"(\w+\.cu)"')
RANKING = "token-ranking.txt"  # in a draft's folder, for draft_vocabulary


def _stems(folder: Path) -> list[str]:
    return sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")


def drafters() -> list[str]:
    return _stems(_DECODING / "drafters")


def policies() -> list[str]:
    return _stems(_DECODING / "policies")


def policy_parameters(policy: str) -> list[str]:
    """What a policy takes: keys of a mode, named by its file's `TAKES`."""
    return list(_declared("policies", policy, "TAKES") or ())


def by_the_clock(policy: str) -> bool:
    """Whether a policy decides by what it has timed: its file's `BY_THE_CLOCK`."""
    return _declared("policies", policy, "BY_THE_CLOCK") is True


def runtimes() -> list[str]:
    return _stems(_DECODING / "runtimes")


@functools.cache
def acceptance_rules() -> list[str]:
    """Names of the public functions of acceptance.py: each is a rule."""
    tree = ast.parse((_DECODING / "acceptance.py").read_text(encoding="utf-8"))
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]


@functools.cache
def acceptance_parameters(rule: str) -> list[str]:
    """What a rule takes beside the case: keys of a mode."""
    tree = ast.parse((_DECODING / "acceptance.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == rule:
            return [argument.arg for argument in node.args.args[1:]]
    return []


def promises() -> dict[str, str]:
    """What rules promise of the text, by name: see acceptance.py."""
    return _declared(".", "acceptance", "PROMISES")


def rules_that(kind: str) -> list[str]:
    """Names of the rules in one of the lists of acceptance.py: GREEDY or SAMPLED."""
    return _declared(".", "acceptance", kind)


def needs_draft_model(drafter: str) -> bool:
    """Whether the drafter's file declares `NEEDS_DRAFT_MODEL = True`."""
    return drafter != "none" and _declared("drafters", drafter, "NEEDS_DRAFT_MODEL") is True


def not_on_cpu(runtime: str) -> str:
    """Why a runtime has nothing to do on a CPU: its `NEEDS_ACCELERATOR`; '' if it runs there."""
    return _declared("runtimes", runtime, "NEEDS_ACCELERATOR") or ""


def runs_whole_rounds(runtime: str) -> bool:
    """Whether the parts of a round are the runtime's own: its `WHOLE_ROUNDS = True`."""
    return _declared("runtimes", runtime, "WHOLE_ROUNDS") is True


def captures(runtime: str) -> bool:
    """Whether a runtime records its launches beforehand: its `CAPTURES = True`."""
    return _declared("runtimes", runtime, "CAPTURES") is True


def peer(runtime: str) -> str:
    """What another library decodes by in a runtime's place: its `PEER`; '' if nothing does."""
    return _declared("runtimes", runtime, "PEER") or ""


def plain_runtime(runtime: str) -> str:
    """The runtime of a mode's plain decoding: its own, or the one that its file calls `PLAIN`."""
    return _declared("runtimes", runtime, "PLAIN") or runtime


def allowed_by(runtime: str, part: str) -> tuple[str, ...] | None:
    """What a mode's `drafter`, `acceptance` or `round` may be with this runtime; None is any.

    The runtime's file says so in `DRAFTERS`, `ACCEPTANCE` and `ROUNDS`.
    """
    names = {"drafter": "DRAFTERS", "acceptance": "ACCEPTANCE", "round": "ROUNDS"}
    return _declared("runtimes", runtime, names[part])


@functools.cache
def _declared(folder: str, name: str, constant: str):
    """The literal value of a constant at the top of a part's file, or None; nothing is imported."""
    tree = ast.parse((_DECODING / folder / f"{name}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == constant:
            return ast.literal_eval(node.value)
    return None


@functools.cache
def core_files() -> tuple[Path, ...]:
    """The measurement core: what every timing cell executes, whatever its mode.

    The files of measure/, the acceptance rules, and all of the engine that they import, CUDA
    sources included; the parent of the measuring process brings nothing else into it.
    """
    roots = [ENGINE / "measure" / "job.py", _DECODING / "acceptance.py"]
    return tuple(sorted({*_with_imports(roots), *(ENGINE / "measure").glob("*.py")}))


@functools.cache
def mode_files(drafter: str, runtime: str, policy: str = "fixed") -> tuple[Path, ...]:
    """The files beyond the core that one composition executes."""
    roots = [_DECODING / "runtimes" / f"{runtime}.py", _DECODING / "policies" / f"{policy}.py"]
    if drafter != "none":
        roots.append(_DECODING / "drafters" / f"{drafter}.py")
    return tuple(sorted(_with_imports(roots) - set(core_files())))


def _with_imports(roots: list[Path]) -> set[Path]:
    """Files and, transitively, the engine's files that they import, load or include."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_imported(path))
    return found


def _imported(path: Path) -> list[Path]:
    text, names = path.read_text(encoding="utf-8"), set()
    if path.suffix != ".py":
        return [path.parent / name for name in _INCLUDE.findall(text)]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("engine.")]
    # What a file of kernels/ names in quotes, it hands to the compiler.
    files += [path.parent / name for name in _SOURCE.findall(text)]
    return [file for file in files if file.is_file()]


def files_sha256(paths: Iterable[Path]) -> str:
    """One hash over names and contents, so that a moved line anywhere is seen."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(ENGINE).as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@functools.cache
def engine_sha256() -> str:
    """Hash of the measurement core."""
    return files_sha256(core_files())
