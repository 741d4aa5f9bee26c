"""The files that GitHub and Read the Docs read are valid."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.result_files import ROOT

SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/*_re*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
    "vendor.citation-file-format": "CITATION.cff",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_valid(schema):
    paths = [str(path) for path in ROOT.glob(SCHEMAS[schema])]
    assert paths
    check = [sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml", "--builtin-schema", schema]
    done = subprocess.run([*check, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
