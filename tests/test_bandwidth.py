"""What a step reads, and the peak that its bytes a second are held against."""

import math
from types import SimpleNamespace

import pytest
import torch
from random_models import FAMILIES, random_decoder

from engine.decoding.runtimes import eager
from engine.measure.job import CellRun


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_reads_every_weight_once_and_the_cache(family):
    decoder = random_decoder(family, "cpu", torch.float32)
    weights = decoder.weights()
    assert len({w.data_ptr() for w in weights}) == len(weights)
    read = sum(w.nbytes for w in weights)
    assert decoder.step_bytes(0) == read
    assert decoder.step_bytes(7) - read == 7 * decoder.new_cache(1).nbytes
    tied = decoder.embedding is decoder.head
    assert decoder.weights_bytes == read + (0 if tied else decoder.embedding.nbytes)


def test_the_peak_is_measured_over_the_models_own_weights():
    # What a cell does where a step is too large for the last-level cache, with a model of a test.
    run = object.__new__(CellRun)
    run.torch, run.cuda = torch, False
    run.runtime = eager.Runtime(torch.device("cpu"))
    run.target = SimpleNamespace(model=random_decoder("llama", "cpu", torch.float32))
    peak = run.peak_read_bandwidth()
    assert math.isfinite(peak)
    assert peak > 0
