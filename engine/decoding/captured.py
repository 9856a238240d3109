"""A decoder's forward step as CUDA graphs over static buffers, one for each number of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.decoding.crossings import Built, pool_bytes
from engine.kernels.step import FusedStep, Ports, TwinStep, why_not_fused
from engine.models.cache import Cache
from engine.models.decoder import Decoder


class CapturedStep:
    """Stands for `decoder.forward` on one cache, for steps of 1 to `most` tokens.

    Position and length lie on the device, so a graph serves every position. Where the fused
    kernel cannot run the model its twin runs, and on a CPU launch by launch.
    """

    def __init__(self, decoder: Decoder, cache: Cache, most: int) -> None:
        self._decoder = decoder
        self._fused = not why_not_fused(decoder, most)
        self._step = (FusedStep if self._fused else TwinStep)(decoder, cache, most)
        self._logits = self._step.logits

        def zeros(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.long, device=decoder.device)

        rows, start, tokens, choices = zeros(1), zeros(1), zeros(most), zeros(most)
        self._ports = {
            count: Ports(tokens[:count], rows, start, choices[:count])
            for count in range(most, 0, -1)
        }
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        if decoder.device.type == "cuda":
            self._capture()

    @property
    def built(self) -> Built:
        graphs = self._graphs.values()
        kernels = "fused" if self._fused else "twins"
        return Built(len(graphs), pool_bytes(graphs) if graphs else 0, kernels)

    def __call__(self, tokens: Tensor, cache: Cache, rows: int = 1) -> Tensor:
        """As Decoder.forward: logits of the last `rows` tokens, [rows, vocabulary]."""
        count = tokens.shape[0]
        if count not in self._ports:  # somebody is further behind than rounds make them
            return self._decoder.forward(tokens, cache, rows)
        cache.reserve(count)
        ports = self._ports[count]
        ports.tokens.copy_(tokens)
        ports.rows.fill_(count)
        ports.start.fill_(cache.length)
        if self._graphs:
            self._graphs[count].replay()
        else:
            self._step(ports)
        cache.advance(count)
        # The next step writes to the same place, and logits are kept between rounds.
        return self._logits[count - rows : count].clone()

    def _capture(self) -> None:
        """Largest first, into one pool; with no row that counts, nothing is written."""
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for ports in self._ports.values():
                self._step(ports)
        torch.cuda.current_stream().wait_stream(side)
        for count, ports in self._ports.items():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self._step(ports)
            self._graphs[count] = graph
