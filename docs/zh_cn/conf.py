"""The Chinese site; see docs/conf_base.py."""

import gettext
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs import conf_base
from docs.conf_base import *  # noqa: F403

language = "zh_CN"


class FuroWords(gettext.NullTranslations):
    """The words of furo's templates that Sphinx does not translate."""

    words = {
        "Next": "下一页",
        "Previous": "上一页",
        "Home": "首页",
        "On this page": "本页目录",
        "Back to top": "回到顶部",
        "Skip to content": "跳到正文",
        "Made with ": "主题：",
    }

    def gettext(self, message):
        """The Chinese word, or the message itself."""
        return self.words.get(message, message)


def setup(app):
    """Connect the functions of both languages, and add the words."""
    conf_base.setup(app)
    app.connect("builder-inited", lambda app: app.translator.add_fallback(FuroWords()))
