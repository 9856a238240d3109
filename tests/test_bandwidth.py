"""What a step reads, and the peak that its bytes a second are held against."""

import math

import pytest
import torch

from engine.decoding.runtimes import eager
from engine.measure.peak import peak_read_bandwidth
from tests.random_models import FAMILIES, random_decoder


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


def test_the_peak_is_measured_over_a_models_own_weights():
    # Timing decides nothing here: that there is a number is what a cell with a small cache needs.
    decoder = random_decoder("llama", "cpu", torch.float32)
    runtime = eager.Runtime(torch.device("cpu"))
    peak = peak_read_bandwidth(decoder.weights(), runtime.wait, cuda=False)
    assert math.isfinite(peak)
    assert peak > 0
