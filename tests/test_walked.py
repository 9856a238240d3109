"""The embedded pair in fp32: its rounds are those that its acceptance trace predicts."""

import pytest

from tests.walked import compare

pytestmark = pytest.mark.timeout(600)


def test_the_trace_predicts_the_rounds_of_the_embedded_pair():
    cases = list(compare(["python"], [1, 3, 8]))
    assert len(cases) == 6
    for case in cases:
        assert case.walked == case.taken, (case.form, case.k)
    assert any(m for case in cases for _, m in case.taken)
