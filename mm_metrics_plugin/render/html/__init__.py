"""The frame of every HTML page: one file that opens from disk and asks nobody for anything.

A page is a template under ``templates/`` that extends ``base.html``, the numbers as JSON inside it, and the scripts
that show them. Jinja2 escapes everything the templates are given, and the scripts only ever set text, so that names are
text whatever they contain. The page also tells the browser to load nothing from outside.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple

from mm_metrics_plugin.render.comparison import points
from mm_metrics_plugin.render.sentences import mask_lines
from mm_metrics_plugin.render.tables import cell, printable

if TYPE_CHECKING:
    from jinja2 import Environment

    from mm_metrics_plugin.render.sections import Section

TEMPLATES = Path(__file__).parent / "templates"
LIBRARIES = {"jinja2": "jinja2", "plotly": "plotly", "PIL": "pillow"}  # by the name they are imported under
# Signs that would end a script element, or a line of a script, are written as JSON writes them out.
_WRITTEN_OUT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def missing_libraries() -> List[str]:
    """The libraries a page needs that are not installed.

    Example:
        >>> missing_libraries()
        []
    """
    return [name for module, name in LIBRARIES.items() if find_spec(module) is None]


def script_json(text: str) -> str:
    r"""JSON that can stand inside a script element, and means the same.

    Example:
        >>> print(script_json('["</script>"]'))
        ["\u003c/script\u003e"]
    """
    return text.translate(_WRITTEN_OUT)


def percent(value: Any) -> str:
    r"""A share for reading, a dash where it is undefined.

    Example:
        >>> percent(0.12345), percent(float("nan")), percent(None)
        ('12.3\u202f%', '–', '–')
    """
    return "–" if value is None or value != value else f"{100 * value:.1f}\u202f%"


def count(value: Any) -> str:
    """A whole number for reading.

    Example:
        >>> count(12345)
        '12,345'
    """
    return f"{value:,}"


def exact(value: Any) -> str:
    """A number in full, as JSON has it; nothing where it is undefined.

    Example:
        >>> exact(0.1 + 0.2), exact(3), exact(float("nan"))
        ('0.30000000000000004', '3', '')
    """
    return "" if value is None or value != value else repr(value.item() if hasattr(value, "item") else value)


def grouped_sections(sections: Sequence[Section]) -> List[Dict[str, Any]]:
    """Sections, each with those without a heading that follow it.

    Example:
        >>> from mm_metrics_plugin.render.sections import Section
        >>> [(one["section"].heading, len(one["parts"])) for one in grouped_sections([Section("a"), Section("")])]
        [('a', 1)]
    """
    found: List[Dict[str, Any]] = []
    for one in sections:
        if one.heading:
            found.append({"section": one, "parts": []})
        else:
            found[-1]["parts"].append(one)
    return found


def file_entries(inputs: Mapping[str, Any], roles: Sequence[str]) -> List[Tuple[str, Mapping[str, Any]]]:
    """The files that were read, each with its part in it.

    Example:
        >>> file_entries({"results": [{"file": "a.pkl"}, {"file": "b.pkl"}]}, ["ground_truth", "results"])
        [('results', {'file': 'a.pkl'}), ('results', {'file': 'b.pkl'})]
    """
    entries = []
    for role in roles:
        found = inputs.get(role, [])
        entries += [(role, one) for one in ([found] if isinstance(found, Mapping) else found)]
    return entries


def input_settings(inputs: Mapping[str, Any], role: str) -> Dict[str, Any]:
    """How labels were read, how files were joined and what was not evaluated, for the table of settings.

    Example:
        >>> input_settings({"class_order": "classes", "results": {"file": "a.pkl", "joined_by": "position"}}, "results")
        {'class order': 'classes', 'joined by': 'position'}
    """
    order = inputs.get("class_order", [])
    entries = [one for _, one in file_entries(inputs, (role,))]
    found = {
        "class order": [order] if isinstance(order, str) else order,
        "joined by": list(dict.fromkeys(one["joined_by"] for one in entries if "joined_by" in one)),
        "masks": [line.partition(": ")[2] for line in mask_lines(entries)],
    }
    return {words: ", ".join(values) for words, values in found.items() if values}


def render_page(template: str, *, data: str, **context: Any) -> str:
    """Make a page.

    Args:
        template: Name of a file under ``templates/``.
        data: JSON that the page's scripts read.
        **context: What the template names.
    """
    from markupsafe import Markup

    return _environment().get_template(template).render(data=Markup(script_json(data)), **context)


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(str(TEMPLATES)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=percent, count=count, exact=exact, cell=cell, printable=printable, points=lambda x: points(x, sign=True)
    )
    environment.globals.update(
        asset=lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8")),
        plotly=lambda: Markup(get_plotlyjs()),
    )
    return environment
