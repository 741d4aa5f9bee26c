"""A plain CocoDataset is read without mmdet: it must be what mmdet builds, object by object."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("mmdet")

from mm_metrics_plugin.io import dataset_config as test_sets
from mm_metrics_plugin.io.plain_coco import read_plain_coco

CLASSES = ("cat", "dog", "emu")
CLASSIC = """
default_scope = 'mmdet'
custom_imports = dict(imports=['mm_metrics_plugin'], allow_failed_imports=False)
test_dataloader = dict(dataset=dict(
    type='CocoDataset', data_root='{root}', ann_file='truth.json', data_prefix=dict(img='pictures/'), test_mode=True,
    filter_cfg=dict(filter_empty_gt=True, min_size=32), backend_args=None, {more}
    pipeline=[dict(type='LoadImageFromFile')]))
"""
NEW_STYLE = """
from mmdet.datasets import CocoDataset
test_dataloader = dict(dataset=dict(
    type=CocoDataset, data_root='{root}', ann_file='truth.json', data_prefix=dict(img='pictures/'), test_mode=True,
    {more} pipeline=[]))
"""
NAMED = f"metainfo=dict(classes={CLASSES}),"


def annotations(seed, categories=CLASSES):
    """Annotations with everything that CocoDataset leaves out or marks."""
    random = np.random.default_rng(seed)
    ids = random.permutation(100)[:12].tolist()
    rows = []
    for number in range(900):
        left, top = random.uniform(-80, 160, 2)
        width, height = random.choice([0, 0.5, 1, 20.25, 60, 200], 2)
        rows.append(
            dict(
                id=number + 1,
                image_id=int(random.choice(ids)),
                category_id=int(random.choice([*(10 * at for at in range(len(categories))), 7])),
                bbox=[float(left), float(top), float(width), float(height)],
                area=float(random.choice([-1, 0, width * height, width * height / 2])),
                iscrowd=int(random.random() < 0.2),
                **({"ignore": int(random.random() < 0.5)} if number % 5 == 0 else {}),
            )
        )
    return dict(
        images=[dict(id=at, file_name=f"{at}.png", height=100, width=20 if at % 3 == 0 else 120) for at in ids],
        annotations=rows,
        categories=[dict(id=10 * at, name=name) for at, name in enumerate(categories)],
    )


def written(folder, config, content, more=NAMED):
    (folder / "truth.json").write_text(json.dumps(content))
    path = folder / "config.py"
    path.write_text(config.format(root=folder.as_posix(), more=more))
    return path


def built(path, monkeypatch, **options):
    """What comes out when mmdet has to build the data set."""
    with monkeypatch.context() as patch:
        patch.setattr(test_sets, "read_plain_coco", lambda *arguments: None)
        return test_sets.read_test_set(path, **options)


def read_plainly(path, classes=None):
    return read_plain_coco(path.name, test_sets._read_config(path, None).to_dict(), classes)


@pytest.mark.parametrize("config", [CLASSIC, NEW_STYLE])
@pytest.mark.parametrize("seed", range(5))
def test_the_objects_are_those_that_mmdet_builds(tmp_path, monkeypatch, config, seed):
    path = written(tmp_path, config, annotations(seed))
    plain, reference = read_plainly(path), built(path, monkeypatch)
    assert plain.source == reference.source
    assert plain.classes == reference.classes
    assert plain.image_ids == reference.image_ids
    assert plain.image_names == reference.image_names
    np.testing.assert_array_equal(plain.image_sizes, reference.image_sizes)
    # mmdet lays the objects image by image, the file has them in any order; within an image the order is the same.
    order = np.argsort(plain.objects.image, kind="stable")
    assert len(order) > 30
    np.testing.assert_array_equal(plain.objects.boxes.array[order], reference.objects.boxes.array)
    for field in ("image", "labels", "crowd", "area"):
        np.testing.assert_array_equal(getattr(plain.objects, field)[order], getattr(reference.objects, field))
    assert plain.tally.read == 900 and plain.tally.used == len(order)
    assert plain.tally.to_dict() == reference.tally.to_dict()


def test_the_names_of_coco_are_those_of_the_installed_mmdet(tmp_path):
    from mmdet.datasets import CocoDataset

    names = CocoDataset.METAINFO["classes"]
    path = written(tmp_path, CLASSIC, annotations(0, names), more="")
    assert read_plainly(path).classes == tuple(names)


UNUSUAL = {
    "a class the file does not have": "metainfo=dict(classes=('cat', 'dog', 'emu', 'fox')),",
    "classes in another order": "metainfo=dict(classes=('dog', 'cat', 'emu')),",
    "a few images only": NAMED + "indices=3,",
    "filtered images": NAMED + "test_mode=False,",
}


@pytest.mark.filterwarnings("ignore:.*lists 'cat':mm_metrics_plugin.exceptions.MetricWarning")  # another class order
@pytest.mark.parametrize("more", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_is_unusual_is_left_to_mmdet(tmp_path, more):
    config = CLASSIC.replace("test_mode=True,", "") if "test_mode" in more else CLASSIC
    path = written(tmp_path, config, annotations(0), more)
    assert read_plainly(path) is None
    truth = test_sets.read_test_set(path)
    assert len(truth.image_ids) == (3 if "indices" in more else 8 if "test_mode" in more else 12)


@pytest.mark.parametrize(
    "change",
    [
        dict(default_scope="mmpretrain"),
        dict(custom_imports=dict(imports=["their_data_sets"])),
        dict(work_dir="${somewhere}"),
    ],
)
def test_a_config_that_may_mean_another_data_set_is_left_to_mmdet(tmp_path, change):
    path = written(tmp_path, CLASSIC, annotations(0))
    config = test_sets._read_config(path, None).to_dict()
    assert read_plain_coco("config.py", config) is not None
    assert read_plain_coco("config.py", {**config, **change}) is None


def test_mmdet_is_not_imported(tmp_path):
    path = written(tmp_path, NEW_STYLE, annotations(0))
    # Started as the command is: a plain import of the package registers the metrics, which imports torch.
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nfrom mm_metrics_command import load\n"
        "read_test_set = load('mm_metrics_plugin.io.dataset_config').read_test_set\n"
        f"print(len(read_test_set({str(path)!r}).image_ids), 'mmdet' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout.split() == ["12", "False", "False"], done.stderr
