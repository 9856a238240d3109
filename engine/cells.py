"""What one process measures, and where its rows lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Cell:
    """One timing job: one process that measures one mode on one prompt."""

    design: str
    context: str
    family: str
    mode: str
    replicate: int
    order_index: int

    @property
    def block(self) -> str:
        return f"{self.context}/{self.family}/r{self.replicate}"

    @property
    def path(self) -> str:
        """Parquet file of the cell's rows, relative to the repository root."""
        return (
            f"results/{self.design}/timing/{self.context}/{self.family}/{self.mode}/"
            f"r{self.replicate}.parquet"
        )
