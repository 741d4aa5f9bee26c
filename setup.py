"""What pyproject.toml cannot say: the description without relative links, and the copy of the tools for MIM."""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
MIM = ("tools", "configs", "demo")
NOT_COPIED = ("__pycache__", "demo.py", "make_detections.py", "detections", "comparison")


def description():
    """Return the README without relative links and images, which PyPI cannot resolve."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


class BuildWithMim(build_py):
    """Copy tools, configs and demo to ``.mim`` in the package, where ``mim run`` looks for them.

    The demonstration of the repository and its data (2.6 MB) stay out.
    """

    def run(self):
        """Build the packages and add the copies. An editable install uses the folders of the repository."""
        super().run()
        if getattr(self, "editable_mode", False):
            return
        root = Path(self.build_lib)
        for name in MIM:
            target = root / "mm_metrics_plugin" / ".mim" / name
            shutil.copytree(HERE / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # `mim search` reads the index of the package; `mim list` that of the first name in top_level.txt.
        for package in ("mm_metrics_plugin", "mm_metrics_command"):
            (root / package / ".mim").mkdir(exist_ok=True)
            shutil.copy(HERE / "model-index.yml", root / package / ".mim")


setup(
    # The string form of pyproject.toml needs setuptools 77, which does not support Python 3.8.
    license="Apache-2.0",
    long_description=description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithMim},
)
