"""How a benchmark says what it found: a table, JSON on request, and a verdict as the last line."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and what it has to reach."""

    name: str
    figure: float
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Whether the bar is reached."""
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "ok" if self.holds else "MISSED"
        return f"{self.name} {self.figure:.2f} (bar {sign} {self.limit:g}) {verdict}"


def table(title: str, header: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    """Print rows under a header, columns aligned."""
    cells = [header, *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(header))]
    click.echo(f"\n{title}")
    for row in cells:
        aligned = [
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  " + "  ".join(aligned))


def _cell(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def finish(name: str, bars: list[Bar], figures: dict[str, Any], json_path: Path | None) -> None:
    """Write the JSON, print the verdict, and exit 0 only when every bar holds."""
    if json_path is not None:
        machine = {
            "cores": psutil.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "platform": platform.platform(),
        }
        verdicts = {
            bar.name: {"figure": bar.figure, "bar": bar.limit, "ok": bar.holds} for bar in bars
        }
        document = {"benchmark": name, "machine": machine, "bars": verdicts, "figures": figures}
        json_path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    click.echo("\n" + "; ".join(str(bar) for bar in bars))
    sys.exit(0 if all(bar.holds for bar in bars) else 1)
