"""The public functions: documented with an example, and imported without SciPy."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from mm_metrics_plugin import functional


@pytest.mark.parametrize("name", functional.__all__)
def test_every_public_function_has_an_example(name):
    public = getattr(functional, name)
    assert public.__doc__
    assert inspect.isclass(public) or "Example:" in public.__doc__


def test_importing_functional_does_not_import_scipy_or_torch():
    code = (
        "import sys; from mm_metrics_command import load; load('mm_metrics_plugin.functional'); "
        "print([name for name in ('scipy', 'torch', 'mmengine', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
