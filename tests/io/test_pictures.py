"""Pictures for a page: found without being led astray, read without trusting them."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from mm_metrics_plugin.io.pictures import LONGEST_SIDE, find_picture, thumbnail


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


def test_a_name_is_found_in_the_folder(folder):
    pictures = str(folder / "pictures")
    assert find_picture("val/b.png", pictures) == folder / "pictures" / "val" / "b.png"
    assert find_picture("elsewhere/a.png", pictures) == folder / "pictures" / "a.png"
    assert find_picture("C:\\data\\a.png", pictures) == folder / "pictures" / "a.png"
    assert find_picture(str(folder / "pictures" / "a.png"), None) == folder / "pictures" / "a.png"


@pytest.mark.parametrize(
    "name", ["../secret.png", "val/../../secret.png", "{folder}/secret.png", "", "a\0.png", "no.png", "val", "x" * 5000]
)
def test_no_name_leads_out_of_the_folder(folder, name):
    assert find_picture(name.format(folder=folder), str(folder / "pictures")) is None


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
    assert made.size == (200, 300)
    grey = np.asarray(small_one(made).convert("L"))
    assert grey.shape == (300, 200) and grey[:, -20:].mean() > 200 and grey[:, :100].mean() < 30  # now on the right


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1", "I;16", "F"])
def test_every_kind_of_picture_is_shown(tmp_path, mode):
    if mode in ("I;16", "F"):
        values = np.linspace(0, 40000, 64 * 64).reshape(64, 64)
        picture = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.float32))
    else:
        picture = Image.linear_gradient("L").convert("RGB" if mode == "CMYK" else mode).convert(mode)
    suffix = "jpg" if mode == "CMYK" else "tiff"
    picture.save(tmp_path / f"a.{suffix}")
    grey = np.asarray(small_one(thumbnail(tmp_path / f"a.{suffix}")).convert("L"))
    assert grey.max() > 200 and grey.min() < 50


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
