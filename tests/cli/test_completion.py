"""Shell completion, tried in a real bash; the overview that the bare command prints."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mm_metrics_plugin.cli import SUBCOMMANDS, main
from tests.helpers import result_files as files

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def completions(folder, *words):
    """What bash offers for the last word."""
    script = folder / "completion.sh"
    script.write_text(files.printed("completion", "bash"))
    array = " ".join(f"'{word}'" for word in ("mm-metrics", *words))
    program = f'source "{script}"; COMP_WORDS=({array}); COMP_CWORD={len(words)}; _mm_metrics; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@needs_bash
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["de"], ["detection"]),
        ([""], [*SUBCOMMANDS, "--help", "--version"]),
        (["detection", "--nms"], ["--nms-iou-thr"]),
        (["detection", "a.json", "--matching", ""], ["coco", "mmdet", "agnostic"]),
        (["compare", "--fo"], ["--format"]),
        (["completion", "z"], ["zsh"]),
        (["detection", "annotations"], []),  # a file, which `complete -o default` completes
    ],
)
def test_bash_completes_subcommands_options_and_values(words, expected, tmp_path):
    assert completions(tmp_path, *words) == expected


def test_zsh_loads_the_functions_of_bash():
    assert files.printed("completion", "zsh").endswith(files.printed("completion", "bash"))


def test_without_arguments_every_subcommand_is_shown_with_an_example(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"  mm-metrics {name} " in text for name in SUBCOMMANDS)
