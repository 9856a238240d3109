"""Arrows one way: what the engine's modules import is what CONTRIBUTING.md says they may."""

import ast
import re

import pytest

from engine.composition import ROOT

ENGINE = ROOT / "engine"


def layers():
    """Layer -> (its modules' first names, what it may import), from the table for contributors."""
    found = {}
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `engine/"):
            continue
        parts = re.findall(r"`(?:engine/)?([a-z_]+)(?:/|\.py)?`", cells[0])
        allowed = cells[2].split(";")[0].replace("`", "").split(",")
        allowed = [re.split(r" and |, which", word)[0].strip() for word in allowed]
        allowed += re.findall(r" and `([a-z_.]+)`", cells[2])
        found[parts[0]] = (set(parts), set(allowed))
    return found


LAYERS = layers()


def layer_of(part):
    (layer,) = [name for name, (parts, _) in LAYERS.items() if part in parts]
    return layer


def imports(path):
    """(layer, dotted name below engine) of everything of the engine that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "engine":
            rest = node.module.split(".")[1:]
            for alias in node.names:
                name = ".".join([*rest, alias.name])
                yield layer_of(name.split(".")[0]), name


def part_of(path):
    inside = path.relative_to(ENGINE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def test_the_table_names_every_part_of_the_engine():
    there = {part_of(path) for path in ENGINE.rglob("*.py")} - {"__init__", "__main__"}
    named = {part for parts, _ in LAYERS.values() for part in parts}
    assert there == named


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_what_it_may(layer):
    parts, allowed = LAYERS[layer]
    if "all of them" in allowed:
        return
    # Some names of the table stand for a layer of several modules.
    whole = {name for name in LAYERS if LAYERS[name][0] & allowed}
    strange = sorted(
        f"{path.relative_to(ROOT)} imports {name}"
        for path in ENGINE.rglob("*.py")
        if part_of(path) in parts
        for other, name in imports(path)
        if other != layer and other not in whole and not any(
            name == one or name.startswith(f"{one}.") for one in allowed
        )
    )  # fmt: skip
    assert strange == []


def test_arrows_go_both_ways_only_where_the_table_says_so():
    arrows = {
        (layer_of(part_of(path)), other)
        for path in ENGINE.rglob("*.py")
        if part_of(path) not in ("__init__", "__main__")
        for other, _ in imports(path)
    }
    both = {frozenset(pair) for pair in arrows if pair[::-1] in arrows and pair[0] != pair[1]}
    assert both == {frozenset({"design", "models"})}
