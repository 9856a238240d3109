"""CUDA sources of this folder, compiled at run time by the compiler that comes with torch."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from engine.models.store import store_root

_SOURCES = Path(__file__).parent


class KernelError(RuntimeError):
    """A kernel could not be compiled, loaded or started; the text is one sentence or a log."""


class Kernel:
    """One loaded kernel, started on torch's current stream."""

    def __init__(self, function: ctypes.c_void_p, threads: int, shared_bytes: int) -> None:
        self._function = function
        self._threads = threads
        self._shared_bytes = shared_bytes
        if shared_bytes:
            _check(_driver().cuFuncSetAttribute(function, 8, shared_bytes))

    def __call__(
        self, blocks: int, parameters: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Start `blocks` blocks with one parameter, a structure passed by value.

        A cooperative start fails where not all blocks fit the device at once.
        """
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = (blocks, 1, 1, self._threads, 1, 1, self._shared_bytes, stream, pointers)
        if cooperative:
            _check(_driver().cuLaunchCooperativeKernel(self._function, *grid))
        else:
            _check(_driver().cuLaunchKernel(self._function, *grid, None))


def load_kernel(
    source: str, name: str, threads: int, shared_bytes: int = 0, **constants: int
) -> Kernel:
    """Kernel `name` of a source file in this folder, for the current device.

    Compiled once for each set of `constants` (macros) and kept in the store. Raises KernelError.
    """
    torch.cuda.current_stream()  # the driver's context exists from here on
    major, minor = torch.cuda.get_device_capability()
    image = cached_image(source, f"sm_{major}{minor}" + ("a" if major >= 9 else ""), constants)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), image))
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
    return Kernel(function, threads, shared_bytes)


def cached_image(source: str, architecture: str, constants: Mapping[str, int]) -> bytes:
    """Machine code of a source file, from the store or the compiler. Raises KernelError."""
    options = [f"-D{name}={value}" for name, value in sorted(constants.items())]
    version = ".".join(map(str, compiler_version()))
    digest = hashlib.sha256(repr((source, architecture, options, version)).encode())
    for path in sorted(_SOURCES.glob("*.cu*")):
        digest.update(path.read_bytes())
    place = store_root() / "kernels" / f"{digest.hexdigest()[:32]}.cubin"
    if place.is_file():
        return place.read_bytes()
    image, _ = compile_source(source, architecture, options)
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(f".{os.getpid()}")
    partial.write_bytes(image)
    partial.rename(place)
    return image


def compile_source(source: str, architecture: str, options: Sequence[str]) -> tuple[bytes, str]:
    """Machine code and the compiler's log. Raises KernelError with the log."""
    nvrtc = _compiler()
    program = ctypes.c_void_p()
    text = (_SOURCES / source).read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None)
    arguments = [
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        "--device-as-default-execution-space",
        f"--include-path={_SOURCES}",
        *options,
    ]
    array = (ctypes.c_char_p * len(arguments))(*(a.encode() for a in arguments))
    failed = nvrtc.nvrtcCompileProgram(program, len(arguments), array)
    log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    try:
        if failed:
            raise KernelError(f"{source} does not compile for {architecture}:\n{log.decode()}")
        image = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image, log.decode().strip("\0")


def compiler_version() -> tuple[int, int]:
    """Release of the run-time compiler. Raises KernelError where there is none."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _compiler().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _text(size_of, fetch, program) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    fetch(program, buffer)
    return buffer.raw


@functools.cache
def _compiler() -> ctypes.CDLL:
    release = (torch.version.cuda or "0").split(".")[0]
    name = f"libnvrtc.so.{release}"
    installed = Path(torch.__file__).parent.parent.glob(f"nvidia/*/lib/{name}")
    for folder in [*(path.parent for path in installed), None]:
        try:
            return _open_compiler(folder, name)
        except OSError:
            continue
    raise KernelError(f"the run-time compiler {name} was not found beside torch")


def _open_compiler(folder: Path | None, name: str) -> ctypes.CDLL:
    if folder is None:
        return ctypes.CDLL(name)
    # The compiler opens its second library by name, which finds it only where it is loaded.
    for builtins in folder.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(folder / name))


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise KernelError(f"the CUDA driver says: {(text.value or b'error').decode()} ({status})")
