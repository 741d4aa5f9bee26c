"""HTML pages: each is one file that opens from disk and loads nothing.

A page is a template under ``templates/`` that extends ``base.html``, its numbers as JSON, and scripts that show them.
Jinja2 escapes every value, and the scripts only set text, so that a name stays text whatever it contains. The page
forbids the browser to load anything from outside.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from mm_metrics_plugin.conventions import DEFAULT_IOU_TYPE, NO_LIMIT
from mm_metrics_plugin.evaluation.inputs import common_folder
from mm_metrics_plugin.exceptions import pluralize
from mm_metrics_plugin.functional.detection.geometry import geometry_of
from mm_metrics_plugin.io.writing import to_json
from mm_metrics_plugin.render.comparison import points
from mm_metrics_plugin.render.sections import Section, unevaluated_lines
from mm_metrics_plugin.render.tables import COLUMN_NAMES, OVERALL_NAMES, cell, printable, rows_of
from mm_metrics_plugin.settings import number_text
from mm_metrics_plugin.version import __version__

if TYPE_CHECKING:
    from mm_metrics_plugin.reports.base import Report

TEMPLATES = Path(__file__).parent / "templates"
LIBRARIES = {"jinja2": "jinja2", "plotly": "plotly", "PIL": "pillow"}  # module: distribution
_SCRIPT_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

SETTING_NAMES = {
    "iou_type": "IoU type",
    "task": "task",
    "task_reason": "reason for the task",
    "matching": "matching",
    "score_thr": "score threshold",
    "iou_thr": "{overlap} threshold",
    "nms_iou_thr": "{overlap} threshold of NMS",
    "convention": "convention of AP",
    "max_dets": "limit of the detections in AP (max_dets)",
    "area_edges": "area edges",
    "operating_point": "operating point",
    "at_specificity": "sensitivity at specificity",
    "at_sensitivity": "specificity at sensitivity",
    "ci": "confidence level",
    "permutations": "permutations",
    "seed": "seed",
}
COLUMN_HELP = {
    "ground_truths": "ground-truth objects",
    "samples": "samples of this class",
    "tp": "true positives",
    "fp": "false positives",
    "fn": "false negatives",
    "precision": "TP / (TP + FP)",
    "recall": "TP / (TP + FN)",
    "f1": "harmonic mean of precision and recall",
    "auc": "area under the ROC curve, one-vs-rest; 0.5 is chance level",
    "AP": "average precision",
    "AP_50": "average precision at a threshold of 0.5",
    "best": "the score threshold with the highest F1 of this class",
}


class Column(NamedTuple):
    """A column of a table: ``kind`` is ``name``, ``count``, ``rate``, ``points``, ``number`` or ``text``."""

    key: str
    title: str
    help: str = ""
    kind: str = "count"


def table_columns(
    names: Sequence[str] = ("name",), counts: Sequence[str] = (), rates: Sequence[str] = ()
) -> list[Column]:
    """Columns with the display names and explanations of their keys."""
    kinds = {"name": names, "count": counts, "rate": rates}
    return [
        Column(key, COLUMN_NAMES.get(key, key), COLUMN_HELP.get(key, ""), kind)
        for kind, keys in kinds.items()
        for key in keys
    ]


def table_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One dict per row, from one array or list per column."""
    return [dict(zip(columns, row)) for row in rows_of(columns)]


def summary_cards(
    values: Mapping[str, float],
    words: Mapping[str, str],
    intervals: Mapping[str, Any],
    comparable_with: Mapping[str, str] | None = None,
) -> list[Any]:
    """The overall metrics with their explanations, confidence intervals and the programs that print the same."""
    same = comparable_with or {}
    return [
        {
            "key": key,
            "title": OVERALL_NAMES[key],
            "value": values[key],
            "words": text,
            "interval": intervals.get(key),
            "comparable_with": same.get(key),
        }
        for key, text in words.items()
    ]


def missing_libraries() -> list[str]:
    """The libraries that a page needs and that are not installed."""
    return [name for module, name in LIBRARIES.items() if find_spec(module) is None]


def percent(value: Any) -> str:
    """A rate in percent, a dash if it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.1f}\u202f%"


def exact(value: Any) -> str:
    """A number with all digits, as in JSON; empty if it is undefined."""
    return "" if value is None or value != value else repr(value.item() if hasattr(value, "item") else value)


def grouped_sections(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """The headings, lines and tables of sections, each with the parts without a heading that follow it."""
    groups: list[dict[str, Any]] = []
    for section in sections:
        header, rows = section.table or ([], [])
        columns = [Column(str(at), title, kind="number" if at else "name") for at, title in enumerate(header)]
        part = {
            "heading": section.heading,
            "lines": section.lines,
            "columns": columns,
            "rows": [{str(at): value for at, value in enumerate(row)} for row in rows],
        }
        if section.heading:
            groups.append({**part, "parts": []})
        else:
            groups[-1]["parts"].append(part)
    return groups


def without_common_folder(names: Sequence[str]) -> list[str]:
    """Names without the folder that contains all of them. Empty names stay empty."""
    common = common_folder(names)
    return [os.path.relpath(name, common) if common and name else name for name in names]


def file_entries(inputs: Mapping[str, Any], roles: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """The files that were read, each with its role."""
    lists = {role: inputs.get(role, []) for role in roles}
    return [
        (role, entry)
        for role, entries in lists.items()
        for entry in ([entries] if isinstance(entries, Mapping) else entries)
    ]


def provenance(report: Any, roles: Sequence[str]) -> dict[str, Any]:
    """Files, settings and versions, for the section "Provenance"; the results are the last of the roles."""
    inputs, settings = report.inputs, report.settings.to_dict()
    entries = [entry for _, entry in file_entries(inputs, roles[-1:])]
    order = inputs.get("class_order", [])
    lists = {
        "class order": [order] if isinstance(order, str) else order,
        "joined by": list(dict.fromkeys(entry["joined_by"] for entry in entries if "joined_by" in entry)),
        "not evaluated": unevaluated_lines(entries, settings),
    }
    overlap = geometry_of(settings.get("iou_type", DEFAULT_IOU_TYPE)).overlap_name
    names = {key: name.format(overlap=overlap) for key, name in SETTING_NAMES.items()}
    shown = {name: settings[key] for key, name in names.items() if settings.get(key) is not None}
    shown = {name: "none" if value == NO_LIMIT else value for name, value in shown.items()}
    lists.update({name: list(map(str, value)) for name, value in shown.items() if isinstance(value, (list, tuple))})
    return {
        "files": file_entries(inputs, roles),
        "settings": {**shown, **{name: ", ".join(values) for name, values in lists.items() if values}},
        "versions": inputs["versions"] if isinstance(inputs["versions"], dict) else {},
    }


def render_page(template: str, report: Report, *, data: Mapping[str, Any], **context: Any) -> str:
    """Render a template with its variables, and data for the scripts of the page."""
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
        percent=percent,
        exact=exact,
        cell=cell,
        number_text=number_text,
        pluralize=pluralize,
        printable=printable,
        points=lambda value: points(value, sign=True),
    )
    environment.globals.update(
        asset=lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8")),
        plotly=lambda: Markup(get_plotlyjs()),
    )
    page = environment.get_template(template)
    json = to_json(data, compact=True).translate(_SCRIPT_ESCAPES)
    return page.render(data=Markup(json), report=report, version=__version__, **context)
