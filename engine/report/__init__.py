"""The HTML report: one self-contained page from the tables of the analysis."""

from engine.report.page import render

__all__ = ["render"]
