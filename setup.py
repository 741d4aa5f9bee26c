"""Installs mm_metrics_plugin. Tools' settings are in pyproject.toml."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
MIM = ("tools", "configs", "demo")


def requirements(name):
    """The requirement lines of ``requirements/<name>.txt``, comments left out."""
    lines = (HERE / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def description():
    """The README as a registry shows it: without the links and pictures that lead into the project's folder."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


class BuildWithMim(build_py):
    """Puts tools, configs and demo under ``.mim`` in the package, where MIM looks for them (``mim run``)."""

    def run(self):
        """Copies them beside what was built; an editable install has them already."""
        super().run()
        if not getattr(self, "editable_mode", False):
            for name in MIM:
                place = Path(self.build_lib, "mm_metrics_plugin", ".mim", name)
                shutil.copytree(HERE / name, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


version = re.search(
    r'__version__ = "(.+)"', (HERE / "mm_metrics_plugin" / "version.py").read_text(encoding="utf-8")
).group(1)

setup(
    name="mm_metrics_plugin",
    version=version,
    description="Exact classification and detection metrics for OpenMMLab: right by default, reproducible on request",
    long_description=description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.8",
    packages=find_packages(include=["mm_metrics_command", "mm_metrics_plugin", "mm_metrics_plugin.*"]),
    package_data={"mm_metrics_command": ["py.typed"], "mm_metrics_plugin": ["py.typed", "render/html/templates/*"]},
    install_requires=requirements("runtime"),
    extras_require={
        "mmdet": ["mmdet>=3.0"],
        "mmpretrain": ["mmpretrain>=1.0"],
        "mmseg": ["mmsegmentation>=1.0"],
        "report": requirements("report"),
        "tests": requirements("tests"),
    },
    cmdclass={"build_py": BuildWithMim},
    entry_points={"console_scripts": ["mm-metrics = mm_metrics_command:main"]},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.8",
        "Programming Language :: Python :: 3.11",
        "License :: OSI Approved :: Apache Software License",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
