"""The bandwidth that a step is held against: reading a large buffer once, and nothing else."""

from __future__ import annotations

import ctypes
import statistics

import torch

from engine.kernels.nvrtc import load_kernel


def read_bandwidth(gib: int = 4, repeats: int = 12) -> float:
    """Bytes a second of reading `gib` GiB on the current device: the median of `repeats`.

    The buffer must be far larger than the last-level cache.
    """

    class Sweep(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p),
            ("count", ctypes.c_int64),
            ("never", ctypes.c_void_p),
        ]

    data = torch.empty(gib << 30, dtype=torch.uint8, device="cuda").random_()
    never = torch.zeros(1, dtype=torch.int32, device="cuda")
    parameters = Sweep(data.data_ptr(), data.nbytes // 16, never.data_ptr())
    kernel = load_kernel("sweep.cu", "sweep", 512)
    blocks = torch.cuda.get_device_properties(data.device).multi_processor_count * 4
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        kernel(blocks, parameters)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return data.nbytes / statistics.median(times)
