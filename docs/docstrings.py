"""How mkdocstrings reads the docstrings of this package; see mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Wording(griffe.Extension):
    """Makes of a docstring what mkdocstrings knows: sections of examples, and names as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every function, class and module that has been read."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":(?:class|meth|func|mod):`~?\.?([^`]+)`", r"`\1`", text)
