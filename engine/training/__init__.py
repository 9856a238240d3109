"""Distil the two-layer draft: corpus from the target's text, training loop, evaluation."""
