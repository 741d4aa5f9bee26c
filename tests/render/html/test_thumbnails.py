"""Pictures for a page: found without being led astray, read without trusting them."""

from __future__ import annotations

import base64
import io
import os

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.render.html.thumbnails import LONGEST_SIDE, FoundImage, ImageFinder, Thumbnail, thumbnail


def small_one(made):
    """The picture inside the page."""
    head, _, body = made.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pictures" / "val").mkdir(parents=True)
    for name in ("secret.png", "pictures/a.png", "pictures/val/b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    return tmp_path


def found(name, folder=None, names=None, **options):
    return ImageFinder(names or [name], folder=folder and str(folder), **options).find(name)


def test_a_name_is_found_in_the_folder(folder):
    pictures = folder / "pictures"
    assert found("val/b.png", pictures) == FoundImage(pictures / "val" / "b.png")
    assert found(str(pictures / "a.png"), pictures) == FoundImage(pictures / "a.png")
    assert found("elsewhere/a.png", pictures) == FoundImage(pictures / "a.png", by_base_name=True)
    assert found("C:\\data\\a.png", pictures) == FoundImage(pictures / "a.png", by_base_name=True)


def test_the_last_part_of_a_name_is_used_only_if_no_other_image_has_it(folder):
    """Otherwise the page shows an image of one camera with the boxes of another."""
    names = ["cam1/a.png", "cam2/a.png", "cam2/c.png"]
    Image.new("RGB", (8, 8)).save(folder / "pictures" / "c.png")
    assert found("cam2/a.png", folder / "pictures", names).path is None
    assert found("cam2/c.png", folder / "pictures", names).path == folder / "pictures" / "c.png"


@pytest.mark.parametrize(
    "name", ["../secret.png", "val/../../secret.png", "{folder}/secret.png", "", "a\0.png", "no.png", "val", "x" * 5000]
)
def test_no_name_leads_out_of_the_folder(folder, name):
    name = name.format(folder=folder)
    assert found(name, folder / "pictures").path is None
    assert found(name, dataset_folders=[str(folder / "pictures")]).path is None
    inside = found(str(folder / "pictures" / name), dataset_folders=[str(folder / "pictures")])
    assert inside.path is None


def test_images_of_a_config_are_those_below_its_folders(folder):
    pictures = folder / "pictures"
    names = {"a.png": None, "val/b.png": None, "../secret.png": True, str(folder / "secret.png"): True, "no.png": False}
    for name, outside in names.items():
        one = found(os.path.join(pictures, name), dataset_folders=[str(folder / "no"), f"{pictures}/"])
        expected = FoundImage(outside=outside) if outside is not None else FoundImage(pictures / name)
        assert one == expected
    assert found("a.png").outside  # nobody knows the folder
    # With a folder in its place, the name below the config's folder is looked for.
    moved = folder / "moved" / "val"
    moved.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(moved / "b.png")
    one = found(str(pictures / "val" / "b.png"), folder / "moved", dataset_folders=[str(pictures)])
    assert one == FoundImage(moved / "b.png")


def test_links_are_followed_below_the_folder_only(folder):
    pictures = folder / "pictures"
    (pictures / "out.png").symlink_to(folder / "secret.png")
    (pictures / "in.png").symlink_to(pictures / "a.png")
    (folder / "link").symlink_to(pictures)
    for options in ({"folder": pictures}, {"dataset_folders": [str(pictures)]}):
        assert found(str(pictures / "out.png"), **options) == FoundImage(outside=True)
        assert found(str(pictures / "in.png"), **options) == FoundImage(pictures / "in.png")
    assert found("a.png", folder / "link") == FoundImage(folder / "link" / "a.png")


def test_a_size_agrees_as_stored_or_as_shown():
    assert thumbnail_of((300, 200)).has_size(200, 300)
    assert not thumbnail_of((300, 200)).has_size(300, 200)
    assert thumbnail_of((300, 200), rotated=True).has_size(300, 200)
    assert thumbnail_of((300, 200)).has_size(0, 0)  # nobody knows


def thumbnail_of(size, rotated=False):
    return Thumbnail("", size, rotated)


def test_large_ones_become_small(tmp_path):
    Image.effect_noise((1600, 900), 80).convert("RGB").save(tmp_path / "a.jpg")
    made = thumbnail(tmp_path / "a.jpg")
    assert made.size == (1600, 900)
    assert small_one(made).size == (LONGEST_SIDE, LONGEST_SIDE * 9 // 16)
    assert len(made.uri) < 150_000


def test_a_picture_that_lies_on_its_side_is_turned(tmp_path):
    picture = Image.new("RGB", (300, 200), "black")
    picture.paste("white", (0, 0, 300, 40))  # the top
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(tmp_path / "a.jpg", exif=exif)
    made = thumbnail(tmp_path / "a.jpg")
    assert made.size == (200, 300) and made.rotated
    gray = np.asarray(small_one(made).convert("L"))
    assert gray.shape == (300, 200) and gray[:, -20:].mean() > 200 and gray[:, :100].mean() < 30  # now on the right


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1", "I;16", "F"])
def test_every_kind_of_picture_is_shown(tmp_path, mode):
    if mode in ("I;16", "F"):
        values = np.linspace(0, 40000, 64 * 64).reshape(64, 64)
        picture = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.float32))
    else:
        picture = Image.linear_gradient("L").convert("RGB" if mode == "CMYK" else mode).convert(mode)
    suffix = "jpg" if mode == "CMYK" else "tiff"
    picture.save(tmp_path / f"a.{suffix}")
    gray = np.asarray(small_one(thumbnail(tmp_path / f"a.{suffix}")).convert("L"))
    assert gray.max() > 200 and gray.min() < 50


def test_what_is_no_picture_is_none(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    whole = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(whole, format="PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:3000])
    for name in ("a.png", "cut.png", "nowhere.png"):
        assert thumbnail(tmp_path / name) is None
    (tmp_path / "bomb.png").write_bytes(whole.getvalue())
    assert thumbnail(tmp_path / "bomb.png") is not None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 200 - 1)  # Pillow would only warn up to twice its limit
    assert thumbnail(tmp_path / "bomb.png") is None
