"""One thread a test process: tiny models drown in thread switches, and machines have two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_modifyitems(items):
    """Files that run whole workflows first, so that two workers end at about the same time."""
    items.sort(key=lambda item: not item.path.name.startswith(("test_workflow", "test_exactness")))
