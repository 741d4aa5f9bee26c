"""The campaign's own bookkeeping: figures are kept, replaced and judged as they should be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from campaign.document import section, sections_of, write
from campaign.environments import ROOT, interpreter, newest
from campaign.part import Figures, Part
from campaign.suites import pytest_counts
from campaign.survivors import REASONS, reason


def part(name):
    return Part(name, name.title(), f"About {name}.", Figures)


def figures(good=True):
    made = Figures()
    made.add("a thing", "under 5", "3", True)
    made.add("another | thing", "under 5", "3", good)
    return made


def test_a_part_that_is_run_again_replaces_its_figures_and_no_others(tmp_path):
    parts, path = [part("first"), part("second"), part("third")], tmp_path / "campaign.md"
    write(parts, {"first": section(parts[0], figures(), 3), "third": "old text\n\n| a |\n|---|"}, path)
    before = sections_of(path.read_text())
    assert list(before) == ["First", "Third"]
    write(parts, {"second": section(parts[1], figures(good=False), 300)}, path)
    after = sections_of(path.read_text())
    assert list(after) == ["First", "Second", "Third"]
    assert {name: after[name] for name in before} == before
    assert "| another \\| thing | under 5 | 3 | **no** |" in after["Second"]
    assert "in 5 min" in after["Second"] and after["Second"].count("**no**") == 1 and "**no**" not in after["First"]
    write(parts, {}, path)
    assert sections_of(path.read_text()) == after


def test_nothing_measured_is_no_success():
    assert figures().good
    assert not figures(good=False).good
    assert not Figures().good


def test_counts_are_those_of_the_run(tmp_path):
    tests = tmp_path / "test_some.py"
    tests.write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_skipped(): pytest.skip('no')\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError\n"
        "def test_error(broken): pass\n"
    )
    plain = ["-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-q"]
    counts = pytest_counts([*plain, str(tests)])
    assert (counts.passed, counts.failed, counts.skipped, counts.good) == (1, 2, 1, False)
    counts = pytest_counts([*plain, str(tests), "-k", "good"])
    assert (counts.passed, counts.failed, counts.good) == (1, 0, True)
    assert not pytest_counts([*plain, str(tests), "-k", "nothing"]).good
    assert not pytest_counts([*plain, str(tmp_path / "missing.py")]).good


@pytest.mark.parametrize("inside", [True, False])
def test_a_test_without_its_peer_is_skipped_only_where_the_stack_is_left_out(tmp_path, inside):
    """The plugin skips imports made by tests of the project; whatever else imports in vain still fails."""
    folder = tmp_path if not inside else ROOT / "tests"
    script = (
        "import sys, types\n"
        "from campaign import without_stack\n"
        "sys.modules.pop('tidecv', None)\n"
        "without_stack.STACK = ('no_such_peer',)\n"
        "without_stack.pytest_configure(None)\n"
        f"exec(compile('import no_such_peer', {str(folder / 'test_x.py')!r}, 'exec'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert ("Skipped: needs no_such_peer" in done.stderr) == inside
    assert ("ModuleNotFoundError" in done.stderr) != inside


def test_pythons_are_found_by_their_release():
    release = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = interpreter(release)
    if found is not None:  # the one that runs this may be neither on the PATH nor pyenv's
        shown = subprocess.run([str(found), "--version"], capture_output=True, text=True).stdout
        assert shown.startswith(f"Python {release}.")
    assert interpreter("3.0") is None
    assert newest(above=29) is None


def test_every_reason_is_given_and_fits_its_own_module_only():
    for module, *_ in REASONS:
        assert (ROOT / "mm_metrics_plugin" / module).is_file() or module == "*"
    assert reason("no/module.py", "a = 1", "a = 2") == ""
