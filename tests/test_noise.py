"""Keyed random numbers: the known generator, uniform, independent, and nobody else's."""

import pytest
import torch
from scipy import stats

from engine.decoding.sampling.noise import Noise, Purpose, by_inversion, splitmix64

COUNT = 40_000
AT = torch.arange(COUNT)
NOISE = Noise(7, [1, 2, 3])


def _signed(value):
    return value - 2**64 if value >= 2**63 else value


def test_it_is_splitmix64():
    """The first outputs for seed 0 and for 1234567, as published with the reference code."""
    gamma = 0x9E3779B97F4A7C15
    known = {
        0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F],
        1234567: [6457827717110365317, 3203168211198807973, 9817491932198370423],
    }
    for seed, outputs in known.items():
        states = torch.tensor([_signed((seed + i * gamma) % 2**64) for i in range(3)])
        assert splitmix64(states).tolist() == [_signed(value) for value in outputs]


@pytest.mark.parametrize("purpose", Purpose)
def test_numbers_are_uniform(purpose):
    numbers = NOISE.uniform(purpose, AT)
    assert bool(((numbers > 0) & (numbers < 1)).all())
    assert stats.kstest(numbers.numpy(), "uniform").pvalue > 1e-3


def test_exponentials_are_exponential():
    drawn = NOISE.exponentials(torch.arange(40), 1000).flatten()
    assert bool((drawn > 0).all())
    assert stats.kstest(drawn.numpy(), "expon").pvalue > 1e-3


def _pairs():
    one = {purpose: NOISE.uniform(purpose, AT) for purpose in Purpose}
    for purpose in Purpose:
        yield f"{purpose.name}, neighbours", one[purpose][:-1], one[purpose][1:]
        yield f"{purpose.name}, four apart", one[purpose][:-4], one[purpose][4:]
        yield f"{purpose.name}, next round", one[purpose], NOISE.uniform(purpose, AT, 1)
        yield f"{purpose.name}, next seed", one[purpose], Noise(8, [1, 2, 3]).uniform(purpose, AT)
        yield f"{purpose.name}, next prompt", one[purpose], Noise(7, [1, 2, 4]).uniform(purpose, AT)
        for other in Purpose:
            if other > purpose:
                yield f"{purpose.name} and {other.name}", one[purpose], one[other]
    race = NOISE.exponentials(AT[:400], 100)
    yield "tokens of a race", race[:, :-1].flatten(), race[:, 1:].flatten()
    yield "races of neighbours", race[:-1].flatten(), race[1:].flatten()
    yield "a race and an acceptance", race[:, 0], NOISE.uniform(Purpose.ACCEPT, AT[:400])


@pytest.mark.parametrize(
    ("name", "one", "other"), list(_pairs()), ids=lambda v: v if type(v) is str else ""
)
def test_numbers_are_independent(name, one, other):
    """A chi-squared test of an 8 x 8 table of ranks; 1e-4, for there are about thirty."""
    cells = [(x.argsort().argsort() * 8 // len(x)) for x in (one, other)]
    table = torch.bincount(cells[0] * 8 + cells[1], minlength=64).view(8, 8)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_a_number_depends_on_its_key_only():
    few = torch.tensor([5, 900, 17])
    for purpose in Purpose:
        assert torch.equal(NOISE.uniform(purpose, few), NOISE.uniform(purpose, AT)[few])
    whole = NOISE.exponentials(few, 50)
    assert torch.equal(whole[1:2], NOISE.exponentials(few[1:2], 50))
    assert torch.equal(whole[:, :20], NOISE.exponentials(few, 20))
    assert torch.equal(Noise(7, [1, 2, 3]).exponentials(few, 50), whole)


def test_torch_s_own_generator_is_left_alone():
    before = torch.get_rng_state()
    NOISE.race(torch.full((3, 9), 1 / 9, dtype=torch.float64), AT[:3])
    NOISE.pick(torch.ones(3, 9, dtype=torch.float64), Purpose.DRAFT, AT[:3])
    NOISE.below(torch.full((3,), 0.5), Purpose.ACCEPT, AT[:3])
    assert torch.equal(torch.get_rng_state(), before)


def test_inversion_takes_the_first_token_that_exceeds_the_share():
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]], dtype=torch.float64).expand(6, -1)
    numbers = torch.tensor([1e-300, 0.2499, 0.25, 0.2501, 0.999, 1 - 2**-53], dtype=torch.float64)
    assert by_inversion(weights, numbers).tolist() == [1, 1, 3, 3, 3, 3]


@pytest.mark.parametrize("way", ["race", "pick"])
def test_tokens_come_up_as_often_as_they_should(way):
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64).expand(COUNT, -1)
    drawn = NOISE.race(probs, AT) if way == "race" else NOISE.pick(probs, Purpose.DRAFT, AT)
    counts = torch.bincount(drawn, minlength=5)
    assert counts[4] == 0
    assert stats.chisquare(counts[:4].numpy(), COUNT * probs[0, :4].numpy()).pvalue > 1e-3
