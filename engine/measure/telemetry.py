"""The state of the machine around a run: what the gates need to call it undisturbed."""

from __future__ import annotations

import hashlib
import os
import platform
import resource
from pathlib import Path
from typing import Any

import psutil

# NVML names of bits that mean a slowdown; idle and application-clock bits are not among them.
_SLOWDOWNS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake": 0x80,
}


def boot_id() -> str:
    """Monotonic clocks compare only within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def host_hash() -> str:
    """Tells machines apart without naming them."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]


class CpuTelemetry:
    """Readings of the host; `sample` covers the time since the last `begin`."""

    def __init__(self):
        self._steal = 0.0

    def describe(self) -> dict[str, Any]:
        return {"device_name": _cpu_name(), "last_level_cache": _last_level_cache()}

    def begin(self) -> None:
        self._steal = psutil.cpu_times().steal

    def sample(self) -> dict[str, Any]:
        memory = psutil.virtual_memory()
        return {
            "steal_s": psutil.cpu_times().steal - self._steal,
            "memory_total": memory.total,
            "memory_available": memory.available,
            # ru_maxrss is in KiB on Linux
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def close(self) -> None: ...


class GpuTelemetry(CpuTelemetry):
    """NVML readings of device 0 of this process, beside the host's steal time."""

    def __init__(self):
        super().__init__()
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = _own_handle(pynvml)
        # Counted before this process owns a context: inside a container, NVML lists process ids
        # of the host, so our own cannot be told by its number.
        self._others = len(pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        self._energy = 0

    def describe(self) -> dict[str, Any]:
        import torch

        name = self._nvml.nvmlDeviceGetName(self._handle)
        return {
            "device_name": name if isinstance(name, str) else name.decode(),
            "device_uuid": str(self._nvml.nvmlDeviceGetUUID(self._handle)),
            "driver": str(self._nvml.nvmlSystemGetDriverVersion()),
            "last_level_cache": torch.cuda.get_device_properties(0).L2_cache_size,
        }

    def begin(self) -> None:
        super().begin()
        self._energy = self._total_energy()

    def sample(self) -> dict[str, Any]:
        import torch

        nvml, handle = self._nvml, self._handle
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        processes = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        energy = self._total_energy()
        return {
            **super().sample(),
            "sm_clock": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "temperature": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "power": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "energy_j": (energy - self._energy) / 1000 if energy else None,
            "throttle_reasons": ",".join(n for n, bit in _SLOWDOWNS.items() if bits & bit),
            "foreign_processes": max(self._others, processes - 1),
            "memory_total": memory.total,
            "memory_available": memory.free,
            "peak_bytes": torch.cuda.max_memory_allocated(),
        }

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _total_energy(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError:
            return 0


def telemetry_for(device: str) -> CpuTelemetry:
    return GpuTelemetry() if device == "cuda" else CpuTelemetry()


def _own_handle(nvml):
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if visible.startswith("GPU-"):
        return nvml.nvmlDeviceGetHandleByUUID(visible)
    return nvml.nvmlDeviceGetHandleByIndex(int(visible) if visible.isdigit() else 0)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _last_level_cache() -> int | None:
    sizes = []
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = size.read_text().strip()
        scale = {"K": 1024, "M": 1024**2}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * scale)
    return max(sizes, default=None)
