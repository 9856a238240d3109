"""The embedded pair in fp32: every way to decode gives the tokens that it promises."""

import pytest

from tests.exactness import compare

pytestmark = pytest.mark.timeout(600)


def test_all_families_decode_as_they_promise():
    comparisons = list(compare([96], 12))
    assert len(comparisons) == 16
    for comparison in comparisons:
        assert not comparison.apart, (comparison.family, comparison.apart)
        spec, folded = comparison.traces["spec"], comparison.traces["folded"]
        assert spec.target_calls == len(spec.round_k) + spec.repairs
        assert folded.target_calls == len(folded.round_k)
    assert any(sum(c.traces["spec"].round_m) for c in comparisons)
