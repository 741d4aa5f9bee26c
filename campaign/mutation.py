"""Mutation testing: one small change at a time in the modules that must not be wrong; the tests have to notice.

The changes are those of cosmic-ray; of the many replacements of a binary operator or a comparison each place gets one,
and of each module at most 100 changes are tried, all chosen by a fixed seed. Each is made in a copy of the project.
torch and the peers are imported once; every mutant gets a fork of that process, so that it costs its tests and little
more. How it ended is kept in ``build/`` for as long as the package and its tests stay as they are.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from campaign.environments import ROOT, fingerprint
from campaign.part import Figures, Part
from campaign.survivors import reason

ASKED = 0.85
MOST_MUTANTS = 100
SEED = 8  # of the choice among them
PRELOADED = (
    "torch",
    "mmengine.evaluator",
    "mmengine.structures",
    "mmdet.evaluation",
    "mmdet.registry",
    "mmdet.structures",
)
PRELOADED += ("mmdet.utils", "mmdet.apis", "mmcv.ops", "matplotlib.pyplot", "supervision", "pycocotools.cocoeval")
PRELOADED += ("sklearn.metrics", "scipy.stats", "hypothesis", "pytest", "torchmetrics")
READING = [f"tests/io/test_{name}.py" for name in ("golden", "pickle_limits", "stand_ins", "safe_pickle")]
MATCHING = [f"tests/functional/detection/test_{name}.py" for name in ("boxes", "confusion_rules", "matching")]
# The tests of each module, the quickest to fail first. Its own examples always come before them.
TARGETS: Dict[str, List[str]] = {
    "functional/detection/confusion_rules.py": MATCHING[1:],
    "functional/detection/match_grid.py": [*MATCHING[::-1], "tests/functional/detection/test_average_precision.py"],
    "functional/detection/pairs.py": MATCHING,
    "functional/detection/_assignment.py": MATCHING[::-1],
    "functional/classification/auc.py": ["tests/functional/classification/test_auc.py"],
    "functional/classification/confusion_matrix.py": ["tests/functional/classification/test_confusion_matrix.py"],
    "functional/classification/thresholding.py": ["tests/functional/classification/test_thresholding.py"],
    "io/safe_pickle/__init__.py": READING,
    "io/safe_pickle/machine.py": READING,
    "io/safe_pickle/opcodes.py": READING,
    "io/safe_pickle/safe_globals.py": READING,
}
# Fewer repetitions than in the suite: a mutant is noticed by the first few or not at all.
VARIABLES = {
    "MM_METRICS_SEEDS": "40",
    "FUZZ_TRIALS": "600",
    "HYPOTHESIS_PROFILE": "mutation",
}


class Mutant(NamedTuple):
    """A changed module: which, by what, the line before and after, and the whole text."""

    module: str
    operator: str
    before: str
    after: str
    code: str


def mutants(module: str, seed: int) -> Iterator[Mutant]:
    """Every mutant of a module, in an order that is random but fixed: to make one takes a while."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    source = _source(module)
    tree = get_ast(source)
    places: Dict[Tuple[str, object], List[Tuple[str, int]]] = {}
    for name in sorted(cosmic_ray.plugins.operator_names()):
        try:
            operator = cosmic_ray.plugins.get_operator(name)()
        except TypeError:  # one that wants arguments, such as which variable to insert
            continue
        occurrence = 0
        for node in ast_nodes(tree):
            for start, _ in operator.mutation_positions(node):
                many = "ReplaceBinaryOperator" in name or "ReplaceComparisonOperator" in name
                places.setdefault((name.split("_")[0] if many else f"{name} {occurrence}", start), []).append(
                    (name, occurrence)
                )
                occurrence += 1
    chooser = random.Random(seed)
    chosen = [chooser.choice(replacements) for replacements in places.values()]
    chooser.shuffle(chosen)
    for name, occurrence in chosen:
        try:
            code = mutate_code(source, cosmic_ray.plugins.get_operator(name)(), occurrence)
        except AttributeError:  # cosmic-ray cannot replace an exception with a dotted name
            continue
        if code is not None and _program(code) not in ("", _program(source)):
            yield Mutant(module, name.split("/")[-1], *_changed_line(source, code), code)


def _source(module: str) -> str:
    return (ROOT / "mm_metrics_plugin" / module).read_text(encoding="utf-8")


class _WithoutAnnotations(ast.NodeTransformer):
    """They are text that is never run."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        return self.generic_visit(node)  # type: ignore[return-value]


@lru_cache(maxsize=2)
def _program(code: str) -> str:
    """What a text says to Python; nothing if it is none, as when the star before keyword arguments was replaced."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(_WithoutAnnotations().visit(ast.parse(code)))
    except SyntaxError:
        return ""


def _changed_line(source: str, code: str) -> Tuple[str, str]:
    old, new = source.splitlines(), code.splitlines()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            return " ".join(line.strip() for line in old[a:b]), " ".join(line.strip() for line in new[c:d])
    return "", ""


class Runner:
    """Runs mutants side by side, each in a copy of the project of its own."""

    def __init__(self, slots: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.copies = [Path(self._folder.name, str(slot)) for slot in range(slots)]
        for copy in self.copies:
            for part in ("mm_metrics_command", "mm_metrics_plugin", "tests", "demo", "configs"):
                shutil.copytree(ROOT / part, copy / part)
            shutil.copy(ROOT / "pyproject.toml", copy)
        os.environ.update(VARIABLES)
        # Else every mutant compiles the whole package and its tests anew.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        for name in PRELOADED:
            __import__(name)
        gc.freeze()  # nor need each of them look through what was loaded here

    @staticmethod
    def write(copy: Path, module: str, code: str) -> None:
        """Writes the module into the copy."""
        path = copy / "mm_metrics_plugin" / module
        path.write_text(code, encoding="utf-8")
        for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
            cached.unlink()

    def start(self, copy: Path, module: str, code: str) -> int:
        """Writes the module into the copy and forks a process that runs its tests there; returns its id."""
        self.write(copy, module, code)
        sys.stdout.flush()
        process = os.fork()
        if process:
            return process
        os.setsid()  # so that what the tests start can be ended with them
        resource.setrlimit(resource.RLIMIT_AS, (10 << 30, 10 << 30))
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        os.environ["PYTHONPATH"] = str(copy)
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        import pytest

        # Plugins that look through all that is loaded, which costs more than most tests.
        absent = ("cacheprovider", "xdist", "unraisableexception", "threadexception", "hypothesispytest")
        arguments = [word for name in absent for word in ("-p", f"no:{name}")]
        arguments += ["-x", "-q", "--no-header", "--tb=line", "--basetemp", "temporary", "-k", "not memory_is_bounded"]
        arguments += [f"mm_metrics_plugin/{module}", *TARGETS[module]]
        code_of_pytest = 99
        try:
            code_of_pytest = int(pytest.main(arguments))
        finally:
            sys.stdout.flush()
            os._exit(code_of_pytest)

    def check_unchanged(self, module: str) -> float:
        """The seconds the tests take on the module as it is; they must pass."""
        begin = time.monotonic()
        process = self.start(self.copies[0], module, _source(module))
        _, status = os.waitpid(process, 0)
        if status:
            raise RuntimeError(f"the tests of {module} fail without any change:\n{self.log(self.copies[0])}")
        return time.monotonic() - begin

    @staticmethod
    def log(copy: Path) -> str:
        """The end of what the last run in a copy printed."""
        return (copy / "log.txt").read_text(errors="replace")[-3000:]

    def run(self, module: str, todo: List[Mutant], verbose: bool = False) -> Iterator[Tuple[Mutant, str]]:
        """Each mutant with how it ended: killed, timeout or survived."""
        limit = 20 + 5 * self.check_unchanged(module)
        waiting, free, running = list(reversed(todo)), list(self.copies), {}
        while waiting or running:
            while waiting and free:
                copy, mutant = free.pop(), waiting.pop()
                process = self.start(copy, module, mutant.code)
                running[process] = (copy, mutant, time.monotonic())
            process, status = os.waitpid(-1, os.WNOHANG)
            if process in running:
                copy, mutant, begin = running.pop(process)
                late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                outcome = "timeout" if late else "killed" if status else "survived"
                free.append(copy)
                if verbose:
                    print(
                        f"{time.monotonic() - begin:6.1f} s {outcome:9} {mutant.before}  ->  {mutant.after}", flush=True
                    )
                yield mutant, outcome
            else:
                for process, (_, _, begin) in running.items():
                    if time.monotonic() - begin > limit:
                        os.killpg(process, signal.SIGKILL)
                time.sleep(0.02)
        for copy in self.copies:  # the next module's mutants are changed in one place only
            self.write(copy, module, _source(module))


class Kept:
    """How mutants ended before, by what decides it: the change, and the package and tests as they are."""

    def __init__(self, path: Path = ROOT / "build" / "mutants.txt") -> None:
        path.parent.mkdir(exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._outcomes = dict(line.split() for line in lines)
        self._path = path

    @staticmethod
    def _key(mutant: Mutant) -> str:
        return hashlib.sha256((fingerprint() + mutant.code).encode()).hexdigest()

    def get(self, mutant: Mutant) -> Optional[str]:
        """How it ended, if that is known."""
        return self._outcomes.get(self._key(mutant))

    def keep(self, mutant: Mutant, outcome: str) -> None:
        """Writes it down at once."""
        with self._path.open("a") as file:
            file.write(f"{self._key(mutant)} {outcome}\n")


def outcomes(modules: List[str], most: int, seed: int, verbose: bool) -> Iterator[Tuple[str, Dict[Mutant, str]]]:
    """Module by module, how its mutants ended."""
    kept, runner = Kept(), None
    for module in modules:
        todo = list(islice(mutants(module, seed), most))
        known = {mutant: kept.get(mutant) for mutant in todo}
        new = [mutant for mutant in todo if known[mutant] is None]
        if new:
            runner = runner or Runner(len(os.sched_getaffinity(0)))
            for mutant, outcome in runner.run(module, new, verbose):
                known[mutant] = outcome
                kept.keep(mutant, outcome)
        yield module, known  # type: ignore[misc]


def run(
    modules: Optional[List[str]] = None, most: int = MOST_MUTANTS, seed: int = SEED, verbose: bool = False
) -> Figures:
    """Every module, with so many of its mutants."""
    figures = Figures()
    rows: List[str] = []
    for module, ended in outcomes(modules or list(TARGETS), most, seed, verbose):
        counts = Counter(ended.values())
        share = 1 - counts["survived"] / len(ended)
        figures.add(
            f"`{module}`",
            f"at least {ASKED:.0%} noticed",
            f"{share:.1%} of {len(ended)} ({counts['timeout']} by not ending)",
            share >= ASKED,
        )
        for mutant, outcome in ended.items():
            if outcome == "survived":
                why = reason(mutant.module, mutant.before, mutant.after) or "**not explained**"
                rows.append(f"| `{module}` | {_code(mutant.before)} | {_code(mutant.after)} | {why} |")
    unexplained = sum("**not explained**" in row for row in rows)
    figures.add(
        "changes that went unnoticed",
        "all explained below",
        f"{len(rows)}, {unexplained} not explained",
        not unexplained,
    )
    figures.notes.append(
        "\n".join(["| | before | after | why no test can or need notice |", "|---|---|---|---|", *rows])
    )
    return figures


def _code(text: str) -> str:
    return "`` " + text.replace("|", "\\|") + " ``" if text else "(nothing)"


PART = Part(
    "mutation",
    "Mutation testing",
    "One small change at a time (cosmic-ray's operators; of the replacements of a binary operator or comparison one;"
    f" of each module at most {MOST_MUTANTS}; all chosen by a fixed seed), made in the modules that match,"
    f" rank, count and read. At least {ASKED:.0%} must be noticed by the module's own tests and examples."
    " A run that was cut off goes on where it was, if nothing has changed; the time is that of what was new.",
    run,
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--most", type=int, default=MOST_MUTANTS, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=SEED, help="choose others than the campaign does")
    options = parser.parse_args()
    sys.exit(0 if run(options.modules, options.most, options.seed, verbose=True).good else 1)
