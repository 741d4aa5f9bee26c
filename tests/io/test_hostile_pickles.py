"""Hostile pickles: nothing runs, and each is refused with its offset, within limits of time and memory."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from tests.helpers.pickles import corpus

SECONDS = 2  # promises of SECURITY.md
MEGABYTES = 256

# Reads every file of the corpus in a process with limited memory that records every audit event.
SCRIPT = """
import copyreg, json, os, resource, sys, time
from pathlib import Path
from mm_metrics_plugin.exceptions import ResultFileError
from mm_metrics_plugin.io.safe_pickle import read_pickle

folder, megabytes = Path(sys.argv[1]), int(sys.argv[2])
copyreg.add_extension("os", "system", 240)
copyreg._extension_cache[240] = os.system  # as after a use of this code
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (megabytes << 20),) * 2)
events, reports = [], {}
sys.addaudithook(lambda event, arguments: events.append((event, str(arguments)[:200])))
for path in sorted(folder.iterdir()):
    events.clear()
    start = time.process_time()  # other processes do not count
    try:
        read_pickle(path)
        outcome, message = "read", ""
    except BaseException as error:
        outcome, message = type(error).__name__, str(error)
    seconds = time.process_time() - start
    reports[path.name] = (outcome, message, seconds, list(events))
print(json.dumps(reports))
"""


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    return tmp_path_factory.mktemp("canary") / "ran"


@pytest.fixture(scope="module")
def files(canary):
    return corpus(str(canary))


@pytest.fixture(scope="module")
def reports(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, data in files.items():
        (folder / f"{name}.pkl").write_bytes(data)
    command = [sys.executable, "-c", SCRIPT, str(folder), str(MEGABYTES)]
    # Coverage would change the measured time.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_is_refused_with_its_offset(reports):
    for name, (outcome, message, _, _) in reports.items():
        assert outcome in ("ResultFileError", "UnsafePickleError"), (name, outcome, message)
        assert " byte " in message, (name, message)
        assert name in message
        assert "\n" not in message and "\x1b" not in message


@pytest.mark.parametrize(
    ("start", "forbidden"),
    [
        ("os.system", "os.system"),
        ("posix.system", "posix.system"),
        ("builtins.eval", "eval"),
        ("dotted-name", "collections._sys.modules"),
        ("prefix", "numpy.testing._private.utils.runstring"),
        ("numpy.size", "numpy.size"),
        ("inst", "os.system"),
        ("nested-load", "os.system"),
        ("extension", "EXT"),
        ("newobj", "NEWOBJ"),
        ("build-on-function", "_codecs.encode"),
        ("persistent-id", "PERSID"),
        ("object-array", "O8"),
        ("function-as-result", "collections.OrderedDict"),
    ],
)
def test_forbidden_names_are_in_the_message(reports, start, forbidden):
    chosen = {name: report for name, report in reports.items() if name.startswith(start)}
    assert len(chosen) >= 6
    for name, (outcome, message, _, _) in chosen.items():
        assert outcome == "UnsafePickleError", name
        assert forbidden in message, (name, message)


def test_only_the_file_is_opened(reports, canary):
    for name, (_, _, _, events) in reports.items():
        # One opening may be two events: one of io and one of os.
        assert {event for event, _ in events if event != "builtins.id"} == {"open"}, (name, events)
        assert all(name in details for event, details in events if event == "open"), (name, events)
    assert not canary.exists()


def test_each_is_refused_in_time(reports):
    slowest = max(reports, key=lambda name: reports[name][2])
    assert reports[slowest][2] <= SECONDS, slowest


def test_the_corpus_would_run_under_plain_pickle(files, canary):
    """Plain pickle runs them; otherwise refusing them would show nothing."""
    for name in ("os.system-0", "os.system-2", "os.system-5", "builtins.eval-4", "nested-load-in-storage-id-3"):
        assert not canary.exists()
        try:
            pickle.loads(files[name])
        except Exception as error:
            assert name.startswith("nested"), (name, error)
        assert canary.exists(), name
        canary.unlink()
