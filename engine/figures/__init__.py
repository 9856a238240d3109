"""Figures: one module a figure, each with a `draw` that reads tables and writes files."""
