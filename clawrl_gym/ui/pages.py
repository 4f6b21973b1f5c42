"""Pages of HTML from the templates in `page/`, which do all escaping."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "page"


def render(template: str, folder: Path = FOLDER, **values: object) -> str:
    """A template of `folder`, which may include what is in `page/`; a name it lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader([folder, FOLDER]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return pages.get_template(template).render(**values)
