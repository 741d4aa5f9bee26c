"""Thumbnails: files outside the image folder are never read, and no image file is trusted."""

from __future__ import annotations

import base64
import io
import os

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.render.html.thumbnails import LONGEST_SIDE, FoundImage, ImageFinder, Thumbnail, thumbnail


def decoded(small):
    """The image in the data URI of a thumbnail."""
    head, _, body = small.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


@pytest.fixture
def images(tmp_path):
    """A folder of images, with a file beside it that must not be found."""
    (tmp_path / "images" / "val").mkdir(parents=True)
    for name in ("secret.png", "images/a.png", "images/val/b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    return tmp_path / "images"


def find(name, folder=None, names=None, **options):
    return ImageFinder(names or [name], folder=folder and str(folder), **options).find(name)


def test_a_name_is_found_in_the_folder(images):
    assert find("val/b.png", images) == FoundImage(images / "val" / "b.png")
    assert find(str(images / "a.png"), images) == FoundImage(images / "a.png")
    for name in ("elsewhere/a.png", "C:\\data\\a.png"):
        assert find(name, images) == FoundImage(images / "a.png", by_base_name=True)


def test_a_base_name_is_used_only_if_it_is_unique(images):
    """Otherwise the page shows an image of one camera with the boxes of another."""
    names = ["cam1/a.png", "cam2/a.png", "cam2/c.png"]
    Image.new("RGB", (8, 8)).save(images / "c.png")
    assert find("cam2/a.png", images, names).path is None
    assert find("cam2/c.png", images, names).path == images / "c.png"


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "val/../../secret.png", "{outside}/secret.png", "", "a\0.png", "no.png", "val", "x" * 5000],
)
def test_no_name_leads_out_of_the_folder(images, name):
    name = name.format(outside=images.parent)
    assert find(name, images).path is None
    for path in (name, str(images / name)):
        assert find(path, dataset_folders=[str(images)]).path is None


def test_images_of_a_config_are_those_below_its_folders(images):
    folders = [str(images.parent / "no"), f"{images}/"]
    for name in ("a.png", "val/b.png"):
        assert find(os.path.join(images, name), dataset_folders=folders) == FoundImage(images / name)
    for name, outside in (("../secret.png", True), (str(images.parent / "secret.png"), True), ("no.png", False)):
        assert find(os.path.join(images, name), dataset_folders=folders) == FoundImage(outside=outside)
    assert find("a.png").outside  # without any folder
    # With another folder, the name is the part below the config's folder.
    moved = images.parent / "moved" / "val"
    moved.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(moved / "b.png")
    path = str(images / "val" / "b.png")
    assert find(path, moved.parent, dataset_folders=[str(images)]) == FoundImage(moved / "b.png")


def test_links_are_followed_below_the_folder_only(images):
    (images / "out.png").symlink_to(images.parent / "secret.png")
    (images / "in.png").symlink_to(images / "a.png")
    link = images.parent / "link"
    link.symlink_to(images)
    for options in ({"folder": images}, {"dataset_folders": [str(images)]}):
        assert find(str(images / "out.png"), **options) == FoundImage(outside=True)
        assert find(str(images / "in.png"), **options) == FoundImage(images / "in.png")
    assert find("a.png", link) == FoundImage(link / "a.png")


def test_the_size_agrees_as_stored_or_rotated():
    assert Thumbnail("", (300, 200)).has_size(200, 300) and Thumbnail("", (300, 200)).has_size(0, 0)  # unknown
    assert not Thumbnail("", (300, 200)).has_size(300, 200)
    assert Thumbnail("", (300, 200), rotated=True).has_size(300, 200)


def test_large_images_become_small(tmp_path):
    Image.effect_noise((1600, 900), 80).convert("RGB").save(tmp_path / "a.jpg")
    small = thumbnail(tmp_path / "a.jpg")
    assert small.size == (1600, 900) and len(small.uri) < 150_000
    assert decoded(small).size == (LONGEST_SIDE, LONGEST_SIDE * 9 // 16)


def test_the_exif_orientation_is_applied(tmp_path):
    image, exif = Image.new("RGB", (300, 200), "black"), Image.Exif()
    image.paste("white", (0, 0, 300, 40))  # the top
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    small = thumbnail(tmp_path / "a.jpg")
    assert small.size == (200, 300) and small.rotated
    gray = np.asarray(decoded(small).convert("L"))
    assert gray.shape == (300, 200) and gray[:, -20:].mean() > 200 and gray[:, :100].mean() < 30  # now on the right


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1", "I;16", "F"])
def test_every_mode_is_converted(tmp_path, mode):
    if mode in ("I;16", "F"):
        values = np.linspace(0, 40000, 64 * 64).reshape(64, 64)
        image = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.float32))
    else:
        image = Image.linear_gradient("L").convert("RGB" if mode == "CMYK" else mode).convert(mode)
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.tiff")
    image.save(path)
    gray = np.asarray(decoded(thumbnail(path)).convert("L"))
    assert gray.max() > 200 and gray.min() < 50


def test_unreadable_files_have_no_thumbnail(tmp_path, monkeypatch):
    content = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(content, format="PNG")
    for name, data in (("a.png", b"GIF89a"), ("cut.png", content.getvalue()[:3000]), ("bomb.png", content.getvalue())):
        (tmp_path / name).write_bytes(data)
    assert [thumbnail(tmp_path / name) for name in ("a.png", "cut.png", "missing.png")] == [None] * 3
    assert thumbnail(tmp_path / "bomb.png") is not None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 200 - 1)  # Pillow would only warn up to twice its limit
    assert thumbnail(tmp_path / "bomb.png") is None
