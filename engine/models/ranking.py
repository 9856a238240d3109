"""Which tokens a draft needs most: a list of ids in its folder, the most frequent first.

Source of the idea: FR-Spec, Zhao et al. 2025. The list is made by `python -m engine.training
rank-tokens` and begins with what no text may lack: special tokens and single bytes.
"""

from __future__ import annotations

from pathlib import Path

from engine.composition import RANKING as FILE
from engine.models.folder import ModelError


def read_ranking(folder: str | Path, count: int) -> list[int]:
    """The `count` most frequent token ids; lines that begin with # are comments.

    Raises ModelError, one sentence, if there is no list, a bad one, or one that is too short.
    """
    path = Path(folder) / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        ids = [int(line) for line in lines if line and line[0] != "#"]
    except FileNotFoundError:
        raise ModelError(
            f"draft_vocabulary needs {FILE} in {folder}; `python -m engine.training rank-tokens` "
            "makes it"
        ) from None
    except ValueError:
        raise ModelError(f"{path} must hold one token id a line") from None
    if len(set(ids)) < len(ids) or min(ids, default=0) < 0:
        raise ModelError(f"{path} must hold each token id once, none below 0")
    if count > len(ids):
        raise ModelError(
            f"draft_vocabulary is {count}, but {path} ranks {len(ids)} tokens; ask for at most that"
        )
    return ids[:count]
