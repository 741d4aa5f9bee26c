"""Full-text search in Chinese without a dictionary: text and queries are split into pairs of neighboring characters."""

from __future__ import annotations

import re

from sphinx.search.zh import SearchChinese

HAN = re.compile("[\u4e00-\u9fff]+")


class BigramSearch(SearchChinese):
    """Sphinx' search language ``zh`` with bigrams in the place of words."""

    # Sphinx 9 looks for a stemmer of this name in the page, where there is only the English one.
    language_name = "English"
    js_splitter_code = r"""
var splitQuery = (query) =>
  (query.match(/[\u4e00-\u9fff]+|[a-zA-Z0-9_]+/g) || []).flatMap((run) =>
    /[\u4e00-\u9fff]{3}/.test(run) ? [...run].slice(1).map((last, at) => run[at] + last) : [run]);
"""

    def split(self, input: str) -> list[str]:
        """The bigrams of the Chinese text, and the words of the rest."""
        pairs = [run[at : at + 2] for run in HAN.findall(input) for at in range(len(run) - 1)]
        return pairs + super().split(HAN.sub(" ", input))
