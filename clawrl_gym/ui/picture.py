"""A chart as a picture of its own, with its title and its keys: for a README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _HEAD = 720, 320, 56
CHART_WIDTH, CHART_HEIGHT = _WIDTH - 24, _HEIGHT - _HEAD
"""What the chart itself should measure."""
_STYLE = """
svg{font:12px system-ui,sans-serif;--ink:#1d2430;--dim:#667085;--rule:#e4e7ec;--paper:#ffffff}
@media (prefers-color-scheme:dark){svg{--ink:#e6e9ef;--dim:#98a2b3;--rule:#2b3240;--paper:#12161d}}
.s-reward{--c:#8b5cf6}.s-success{--c:#0d9488}.s-heldout{--c:#ea580c}
.s-recipe0{--c:#0072b2}.s-recipe1{--c:#d55e00}.s-recipe2{--c:#009e73}.s-recipe3{--c:#b8609a}
.s-recipe4{--c:#4a9fd0}.s-recipe5{--c:#c98a00}.s-recipe6{--c:#6b7280}.s-recipe7{--c:#8a5cd6}
.s-recipe1.line{stroke-dasharray:8 4}.s-recipe2.line{stroke-dasharray:2 4}
.s-recipe3.line{stroke-dasharray:10 3 2 3}
text{fill:var(--dim)}.paper{fill:var(--paper);stroke:var(--rule)}.title{fill:var(--ink);
font-size:15px;font-weight:600}.grid{stroke:var(--rule);fill:none}.axis{stroke:var(--dim);fill:none}
.line{stroke:var(--c);fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:4 4}
.bar{stroke:var(--c);stroke-width:1.5;fill:none}.dot{fill:var(--paper);stroke:var(--c);
stroke-width:2.5}.key{fill:var(--c)}.cursor{display:none}
"""


def write_picture(path: Path, title: str, keys: Sequence[tuple[str, str]], chart: Markup) -> None:
    """`keys` are (colour class, words) of the curves."""
    legend = Markup("").join(
        Markup(
            '<circle class="s-{colour} key" cx="{dot}" cy="44" r="4.5"/><text x="{x}" y="48">{name}'
            "</text>"
        ).format(colour=colour, dot=28 + 160 * place, x=38 + 160 * place, name=escape(name))
        for place, (colour, name) in enumerate(keys)
    )
    at = f'<svg x="12" y="{_HEAD}" width="{CHART_WIDTH}" height="{CHART_HEIGHT - 8}" '
    text = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
        'role="img"><style>{style}</style><rect class="paper" x=".5" y=".5" width="{rw}" '
        'height="{rh}" rx="10"/><text class="title" x="22" y="27">{title}</text>{legend}{inner}'
        "</svg>\n"
    ).format(
        w=_WIDTH, h=_HEIGHT, rw=_WIDTH - 1, rh=_HEIGHT - 1, style=Markup(_STYLE),
        title=title, legend=legend, inner=Markup(str(chart).replace("<svg ", at, 1)),
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text), encoding="utf-8")
