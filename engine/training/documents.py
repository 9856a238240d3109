"""Text files found on this machine's disk, with the licences that their packages state."""

import importlib.metadata
import random
import sysconfig
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from engine.training.settings import Documents

LONGEST_FILE = 200_000  # bytes; larger ones are data, not text


@dataclass(frozen=True)
class Document:
    package: str
    suffix: str
    text: str


def find_documents(settings: Documents, seed: int) -> list[Document]:
    """Files in random order, `megabytes` at most, no package above its share of the bytes."""
    roots = list(settings.roots)
    if settings.site_packages:
        roots.append(Path(sysconfig.get_paths()["purelib"]))
    paths = sorted(
        (path, root)
        for root in roots
        for path in root.rglob("*")
        if (path.suffix in settings.suffixes or path.name in settings.suffixes) and path.is_file()
    )
    random.Random(seed).shuffle(paths)
    budget = settings.megabytes * 1e6
    used: dict[str, int] = defaultdict(int)
    documents = []
    for path, root in paths:
        package = path.relative_to(root).parts[0]
        size = path.stat().st_size
        if (
            not 200 <= size <= LONGEST_FILE
            or used[package] + size > settings.package_share * budget
        ):
            continue
        text = path.read_text(errors="ignore")
        if sum(used.values()) + size > budget:
            break
        used[package] += size
        documents.append(Document(package, path.suffix, text))
    return documents


def stated_licences(packages: set[str]) -> dict[str, str]:
    """What each importable package's metadata says of its licence; 'not stated' if nothing."""
    owners = importlib.metadata.packages_distributions()
    licences = {}
    for package in sorted(packages):
        found = set()
        for name in owners.get(package, []):
            metadata = importlib.metadata.metadata(name)
            classifiers = [
                c.rsplit(" :: ", 1)[-1]
                for c in metadata.get_all("Classifier") or []
                if "License ::" in c
            ]
            stated = (
                metadata.get("License-Expression")
                or "; ".join(classifiers)
                or metadata.get("License")
                or ""
            )
            licence = stated.splitlines()[0][:80] if stated else "not stated"
            found.add(f"{name} {metadata['Version']}: {licence}")
        licences[package] = ", ".join(sorted(found)) or "not stated"
    return licences
