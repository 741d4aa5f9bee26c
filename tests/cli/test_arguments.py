"""Where arguments may stand on the command line, and what is said of those that cannot be placed."""

from __future__ import annotations

import pytest

from mm_metrics_plugin.cli import main, make_parser
from mm_metrics_plugin.cli.parsing import class_names
from mm_metrics_plugin.exceptions import ResultFileError
from tests.cli import files


def parsed(*arguments):
    return make_parser().parse_args(list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["t.json", "a.pkl", "b.pkl", "report/", "--ci", "0.95", "--classes", "x,y"],
        ["t.json", "a.pkl", "b.pkl", "--ci", "0.95", "--classes", "x,y", "report/"],
        ["--ci", "0.95", "t.json", "a.pkl", "--classes", "x,y", "b.pkl", "report/"],
        ["--classes", "x,y", "t.json", "--ci", "0.95", "a.pkl", "b.pkl", "--out", "report/"],
        ["--out=report/", "--classes=x,y", "--ci=0.95", "t.json", "a.pkl", "b.pkl"],
    ],
)
@pytest.mark.parametrize("subcommand", ["detection", "compare"])
def test_positional_arguments_stand_anywhere(subcommand, arguments):
    found = parsed(subcommand, *arguments)
    assert (found.truth, found.results, found.out_dir) == ("t.json", ["a.pkl", "b.pkl"], "report/")
    assert (found.ci, found.classes) == (0.95, "x,y")


def test_every_subcommand_takes_the_folder_after_an_option():
    assert parsed("classification", "r.pkl", "--ci", "0.9", "report/").out_dir == "report/"
    assert parsed("classification", "--out", "report/", "r.pkl").out_dir == "report/"
    found = parsed("merge", "a.npz", "--quiet", "b.npz", "report/")
    assert (found.states, found.out_dir) == (["a.npz", "b.npz"], "report/")


@pytest.mark.parametrize("option", ["--cfg-options", "--cfg-opt"])
def test_settings_of_a_config_end_where_no_pair_follows(option):
    found = parsed("detection", "c.py", "r.pkl", option, "a=1", "b.c=[1, 2]", "report/", "--html")
    assert (found.cfg_options, found.out_dir, found.html) == (["a=1", "b.c=[1, 2]"], "report/", True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["detection", "t.json", "r.pkl", "--classes", "a", "b", "c", "report/"], "--classes takes one value"),
        (["classification", "r.pkl", "--classes", "a", "b", "c"], "--classes takes one value"),
        (["detection", "t.json", "r.pkl", "x/", "y/"], "one folder, OUT_DIR, may follow the files (found x/ y/)"),
        (["detection", "t.json", "r.pkl", "x/", "--out", "y/"], "OUT_DIR is given twice: x/ and --out y/"),
        (["detection", "t.json", "r.pkl", "--no-such-option"], "unrecognized arguments: --no-such-option"),
    ],
)
def test_arguments_that_cannot_be_placed(arguments, words, capsys):
    with pytest.raises(SystemExit) as left:
        parsed(*arguments)
    out, said = capsys.readouterr()
    assert left.value.code == 2 and out == "" and said.count("\n") == 1 and words in said


def test_class_names_are_one_value_or_a_file(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("traffic light\na, b\n\n", encoding="utf-8")
    assert class_names(str(path)) == ["traffic light", "a, b"]
    assert class_names("traffic light, cat") == ["traffic light", "cat"]
    assert class_names("x" * 5000) == ["x" * 5000]
    with pytest.raises(ResultFileError, match=r"missing\.txt does not exist"):
        class_names("missing.txt")


def test_the_report_is_written_wherever_the_folder_stands(tmp_path):
    truth, results = files.pair(tmp_path, images=5)
    for name, place in (("a", ["--quiet", str(tmp_path / "a")]), ("b", ["--out", str(tmp_path / "b"), "--quiet"])):
        assert main(["detection", str(truth), str(results), "--matrix-only", *place]) == 0
        assert (tmp_path / name / "report.json").exists()


@pytest.mark.parametrize("way", ["link", "link on the way", "file on the way"])
def test_a_folder_that_cannot_be_made_is_named(way, tmp_path, capsys):
    truth, results = files.pair(tmp_path, images=3)
    place = tmp_path / "report"
    if way.startswith("link"):
        place.symlink_to(tmp_path / "nowhere")
    else:
        place.write_text("a file")
    out = place if way == "link" else place / "inner"
    assert main(["detection", str(truth), str(results), str(out)]) == 2
    said = capsys.readouterr().err
    assert "OUT_DIR must be a folder" in said and str(out) in said and said.count("\n") == 1
    assert ("nowhere', which does not exist" if way.startswith("link") else "found a file") in said


@pytest.mark.parametrize("subcommand", ["classification", "compare"])
def test_samples_of_no_classes_are_refused_in_one_sentence(subcommand, tmp_path, capsys):
    import numpy as np

    nothing = {"pred_score": np.zeros(0, np.float32), "pred_label": np.zeros(0, int), "gt_label": np.zeros(0, int)}
    path = str(files.write_pickle(tmp_path / "r.pkl", [nothing] * 3))
    assert main([subcommand, *(["-", path] if subcommand == "compare" else []), path]) == 2
    said = capsys.readouterr().err
    assert "'pred_score' of sample number 0 must hold the score of at least one class (found 0 scores)" in said


def test_annotations_of_no_classes_are_refused_in_one_sentence(tmp_path, capsys):
    made = files.problem(3)
    nothing = made._replace(**{name: getattr(made, name)[:0] for name in made._fields[2:]})
    truth = files.write_json(tmp_path / "t.json", files.truth_of(nothing, ()))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(made))
    assert main(["detection", str(truth), str(results)]) == 2
    assert "t.json: 'categories' must list at least one class (found an empty list)" in capsys.readouterr().err


@pytest.mark.parametrize("subcommand", ["detection", "compare"])
def test_one_class_is_enough(subcommand, tmp_path):
    made = files.problem(4)
    made = made._replace(labels=made.labels * 0, object_labels=made.object_labels * 0)
    truth = files.write_json(tmp_path / "t.json", files.truth_of(made, ("cat",)))
    results = files.write_pickle(tmp_path / "r.pkl", files.results_of(made))
    again = [results] if subcommand == "compare" else []
    assert "cat " in files.printed(subcommand, truth, results, *again)
