"""Settings that the English and the Chinese site share. Each ``conf.py`` imports all of them."""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
warnings.filterwarnings("ignore", message=".*pkg_resources is deprecated")  # mmengine

from docs.chinese_search import BigramSearch  # noqa: E402  # after the path is set
from mm_metrics_plugin.version import __version__  # noqa: E402

project = "mm_metrics_plugin"
copyright = "the mm_metrics_plugin authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4
# `pycon` prompts and shell prompts are not copied with the code.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_default_options = {"members": True}
autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = f"mm_metrics_plugin {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["../_static"]
html_css_files = ["site.css"]
templates_path = ["../_templates"]
_SIDEBAR = "brand search scroll-start navigation scroll-end"
html_sidebars = {"**": [f"sidebar/{part}.html" for part in _SIDEBAR.split()]}
html_sidebars["**"].insert(2, "language.html")
# Nothing is loaded from another server: no fonts, no scripts, no counters.
html_theme_options = {"top_of_page_buttons": []}
# Links to other sites, checked by `make docs-linkcheck`. Pages of the other language are built separately.
linkcheck_timeout = 20
linkcheck_ignore = [r"(\.\./)+(en|zh_cn)/"]


def replace_repository_links(text: str, folder: str) -> str:
    """Replace links to files of the repository that are not pages with their paths: the site is self-contained.

    Links to pages of the other language become links to their HTML, which is beside that of this language.

    Args:
        text: A page in Markdown.
        folder: The folder of the page, relative to the root of the repository.

    Example:
        >>> replace_repository_links("[a config](../../../configs/digits.py), [page](auc.md)", "docs/en/tutorials")
        'a config (`configs/digits.py`), [page](auc.md)'
        >>> replace_repository_links("[AP](../en/concepts/average_precision.md#limits)", "docs/zh_cn")
        '[AP](../en/concepts/average_precision.html#limits){.external}'
    """
    language = "/".join(folder.replace(os.sep, "/").split("/")[:2])

    def path_of(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        path = os.path.normpath(os.path.join(folder, target)).replace(os.sep, "/")
        if path.startswith((f"{language}/", "docs/images/")):
            return match.group()
        if re.match(r"docs/(en|zh_cn)/.+\.md$", path):
            return f"[{words}]({target[:-3]}.html{anchor or ''}){{.external}}"
        return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]+)?\)", path_of, text)


def _on_source_read(app: Any, name: str, source: list[str]) -> None:
    page = Path(app.srcdir) / name
    source[0] = replace_repository_links(source[0], str(page.parent.relative_to(ROOT)))


def _on_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str) -> Any:
    """Write default factories of dataclasses as ``...``, which Sphinx can parse."""
    return (signature.replace("<factory>", "..."), returns) if signature else None


def _import_lazy_names(app: Any) -> None:
    """Import the names that packages export by ``__getattr__``: autodoc looks at what a module has already."""
    for package in ("evaluation", "render"):
        module = import_module(f"mm_metrics_plugin.{package}")
        vars(module).update({name: getattr(module, name) for name in module.__all__})


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx."""
    app.connect("builder-inited", _import_lazy_names)
    app.connect("autodoc-process-signature", _on_signature)
    app.add_search_language(BigramSearch)
    app.connect("source-read", _on_source_read)
