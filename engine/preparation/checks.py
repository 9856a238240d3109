"""What must hold before the first cell starts, each fault one sentence.

Faults of the config itself are found while the workflow parses (design.py); here is what needs
the machine, the files, the tokenizers or the models' limits.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import psutil

from engine.design import Design

_GIB = 2**30
_FREE_DISK = 0.2 * _GIB  # rows, figures and the report of a large design, with room to spare


class InputFault(ValueError):
    """The design cannot be measured on this machine as it is; the text is one sentence."""


def check_device(design: Design) -> dict[str, Any]:
    """The device that the design asks for is there; needs no model and no torch.

    Raises InputFault if CUDA is asked for and no GPU answers, or if there are too few cores.
    """
    if design.device == "cpu":
        cores = len(os.sched_getaffinity(0))
        if design.cpu_threads > cores:
            raise InputFault(
                f"cpu_threads is {design.cpu_threads}, but this process may use {cores} cores; "
                f"set cpu_threads to {cores} or less"
            )
        return {"device": "cpu", "cores": cores}
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        count = 0
    if not count:
        raise InputFault(
            f"design {design.design!r} asks for device: cuda, but no NVIDIA GPU answers here; "
            "run it on a machine with a GPU and its driver, or use a design with device: cpu"
        )
    memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total
    return {"device": "cuda", "gpus": count, "memory_total": memory}


def check_prompt_files(design: Design, root: Path) -> None:
    """The prompt source is there and, if packaged, has every family; reads no text.

    Raises InputFault. What is inside a user's own file is checked by the rule that reads it.
    """
    if design.prompts.source == "synthetic":
        return
    path = root / design.prompts.path
    if design.prompts.source == "jsonl":
        if not path.is_file():
            raise InputFault(f"prompts file {design.prompts.path} is not there")
        return
    known = sorted(file.stem for file in path.glob("*.txt"))
    for family in design.families:
        if family not in known:
            raise InputFault(
                f"unknown family {family!r}; {design.prompts.path} has {', '.join(known)}"
            )


def check_disk(*folders: Path) -> None:
    """Raises InputFault if the file system of one of the folders is nearly full."""
    for folder in folders:
        free = shutil.disk_usage(folder).free
        if free < _FREE_DISK:
            raise InputFault(
                f"the disk under {folder} is nearly full: {free / _GIB:.2f} GiB free, "
                f"{_FREE_DISK / _GIB:.1f} GiB are needed; free some space and run again"
            )


def check_inputs(
    design: Design, models: dict[str, Any], prompts: list[dict[str, Any]], root: Path
) -> dict[str, Any]:
    """Everything that needs files; returns what was found, for the record.

    Raises InputFault or ModelError with one sentence.
    """
    from engine.models.layout import model_shapes
    from engine.models.loading import FetchedModel, inspect_model
    from engine.models.ranking import read_ranking
    from engine.models.tokenizers import compare_tokenizers

    device = check_device(design)
    check_disk(root, Path(tempfile.gettempdir()))
    longest = max(len(p["tokens"]) for p in prompts) + design.new_tokens
    limits, hidden, made = {}, None, 0
    for role in ("target", "draft"):
        model = models[role]
        if model is None:
            continue
        shape = inspect_model(FetchedModel(**model))
        limits[role] = shape.max_positions
        if design.models.target.source == "synthetic":
            itemsize = 4 if design.dtype == "float32" else 2
            made += itemsize * sum(math.prod(size) for size in model_shapes(shape).values())
        if role == "draft" and model["vocabulary"] is None and shape.hidden != hidden:
            raise InputFault(
                f"the student {model['name']} has hidden size {shape.hidden}, but the target's "
                f"embeddings have {hidden}: it was trained for another target"
            )
        hidden = shape.hidden
        if limits[role] and longest > limits[role]:
            raise InputFault(
                f"a context of {longest} tokens exceeds the limit of {role} {model['name']} "
                f"({limits[role]} positions); ask for shorter contexts"
            )
    for mode in design.modes.values():
        if mode.draft_vocabulary:
            read_ranking(models["draft"]["folder"], mode.draft_vocabulary)
    made_up = design.models.target.source == "synthetic"
    if models["draft"] and models["draft"]["vocabulary"] is not None and not made_up:
        compare_tokenizers(Path(models["target"]["folder"]), Path(models["draft"]["folder"]))
    return {
        "device": device,
        "positions": limits,
        "longest": longest,
        "weights_gib": round(_check_memory(design, models, device, made) / _GIB, 3),
        "prompts": {f"{p['context']}/{p['family']}": len(p["tokens"]) for p in prompts},
    }


def _check_memory(design: Design, models: dict[str, Any], device: dict[str, Any], made: int) -> int:
    """Bytes of the weights, those `made` on the device included; InputFault if they do not fit."""
    files = [
        path
        for role in ("target", "draft")
        if models[role]
        for path in Path(models[role]["folder"]).glob("*.safetensors")
    ]
    # Checkpoints are bf16 or fp32; the wider guess would refuse pairs that fit.
    weights = made + sum(path.stat().st_size for path in files)
    available = device.get("memory_total") or psutil.virtual_memory().available
    if design.memory_limit_gib:
        available = min(available, design.memory_limit_gib * _GIB)
    if weights > available:
        raise InputFault(
            f"the weights take {weights / _GIB:.1f} GiB, but only {available / _GIB:.1f} GiB of "
            f"memory are there for {design.dtype}; use a smaller pair or another machine"
        )
    return weights
