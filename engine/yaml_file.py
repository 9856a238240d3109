"""YAML files that people write: read whole, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from engine.strict import DesignError


class _Loader(yaml.SafeLoader):
    """Refuses a key that a block holds twice: of two modes by one name YAML keeps the last."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        # Before merges: what `<<` brings may well be said anew.
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice: remove or rename one",
                    problem_mark=key.start_mark,
                )
            seen.add(str(key.value))
        return node


def read_yaml(path: str | Path) -> Any:
    """What the file holds. Raises DesignError, which names the file and, if it can, the line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DesignError(f"cannot read the design file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DesignError(f"the design file {path} is not UTF-8 text") from None
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DesignError(f"{path}{line} is not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not
        raise DesignError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise DesignError(f"{path} is nested too deep to be a design") from None
