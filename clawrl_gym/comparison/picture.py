"""The matrix as a picture: a cell for each recipe and measure, coloured where a change is clear.

Blue for gains, orange for losses, stronger for larger ones; no colour where nothing can be told
apart. The environment that a recipe trains on has a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from clawrl_gym.comparison.matrix import Cell, columns_of, matrix_of, words
from clawrl_gym.comparison.results import RecipeResult
from clawrl_gym.core.files.files import replace_text

_CELL_WIDTH, _CELL_HEIGHT, _GAP = 204, 54, 4
_HEAD_HEIGHT, _FOOT_HEIGHT, _LETTER_WIDTH = 40, 52, 7.6
_STYLE = """
.matrix{font:12px system-ui,sans-serif;--ink:#1d2430;--dim:#667085;--rule:#d5dae2;--paper:#fff;
--gain:#0072b2;--loss:#d55e00}
@media (prefers-color-scheme:dark){.matrix{--ink:#e6e9ef;--dim:#98a2b3;--rule:#3a4352;
--paper:#12161d;--gain:#5aa9e6;--loss:#ff8a3d}}
.matrix text{fill:var(--ink)}
.matrix .name{font-weight:600}.matrix .dim{fill:var(--dim)}
.matrix .paper{fill:var(--paper)}.matrix .open{fill:none;stroke:var(--rule)}
.matrix .gain{fill:var(--gain)}.matrix .loss{fill:var(--loss)}
.matrix .own{fill:none;stroke:var(--ink);stroke-width:1.5}
"""
_LEGEND = (
    "before → after, and the difference with its 95 % interval; framed: trained on",
    "blue: gained, orange: lost, no colour: not distinguishable from no change",
)


def matrix_svg(results: Sequence[RecipeResult]) -> Markup:
    """Empty markup when nothing is measured."""
    columns, rows = columns_of(results), matrix_of(results)
    if not columns:
        return Markup("")
    labels = max(len(recipe.name) for recipe in results)
    left = 24 + round(_LETTER_WIDTH * labels)
    width = max(left + len(columns) * (_CELL_WIDTH + _GAP) + 12, 560)
    height = _HEAD_HEIGHT + len(rows) * (_CELL_HEIGHT + _GAP) + _FOOT_HEIGHT
    parts = [
        f'<text class="name" x="{left + at * (_CELL_WIDTH + _GAP) + _CELL_WIDTH / 2}" y="26" '
        f'text-anchor="middle">{escape(name)}</text>'
        for at, name in enumerate(columns)
    ]
    for row, cells in enumerate(rows):
        y = _HEAD_HEIGHT + row * (_CELL_HEIGHT + _GAP)
        name = escape(cells[0].recipe.name)
        parts.append(f'<text class="name" x="12" y="{y + 31}">{name}</text>')
        parts += [_cell(cell, left + at * (_CELL_WIDTH + _GAP), y) for at, cell in enumerate(cells)]
    parts += [
        f'<text class="dim" x="12" y="{height - 30 + 18 * at}">{escape(line)}</text>'
        for at, line in enumerate(_LEGEND)
    ]
    return Markup(  # every text above went through escape()
        f'<svg xmlns="http://www.w3.org/2000/svg" class="matrix" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="recipes by environments"><style>{_STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="10"/>{"".join(parts)}</svg>'
    )


def write_matrix(path: Path, results: Sequence[RecipeResult]) -> None:
    """Write the matrix as a file of its own, once something is measured. Raises OSError."""
    picture = matrix_svg(results)
    if picture:
        replace_text(path, f"{picture}\n")


def _cell(cell: Cell, x: int, y: int) -> str:
    place = f'x="{x}" y="{y}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}" rx="6"'
    middle = x + _CELL_WIDTH / 2
    parts = [f'<rect class="open" {place}/>']
    change = cell.change
    if change is not None and change.is_clear:
        kind = "gain" if change.mean > 0 else "loss"
        strength = 0.15 + 0.45 * min(1.0, abs(change.mean))
        parts = [f'<rect class="{kind}" fill-opacity="{strength:.2f}" {place}/>']
    if cell.is_own:
        parts.append(f'<rect class="own" {place}/>')
    after = "-" if cell.after is None else f"{cell.after:.2f}"
    before = "-" if cell.before is None else f"{cell.before:.2f}"
    parts.append(
        f'<text class="name" x="{middle}" y="{y + 23}" text-anchor="middle">'
        f"{escape(f'{before} → {after}')}</text>"
        f'<text x="{middle}" y="{y + 42}" text-anchor="middle">'
        f"{escape(words(change))}</text>"
    )
    return "".join(parts)
