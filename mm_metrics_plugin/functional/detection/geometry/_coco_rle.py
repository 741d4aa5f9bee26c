"""COCO's segmentations as runs: RLE dicts with compressed strings or lists of run lengths, and polygons."""

from __future__ import annotations

from itertools import chain
from typing import Any, NoReturn, Sequence

import numpy as np

from mm_metrics_plugin.exceptions import MetricInputError, shortened
from mm_metrics_plugin.functional._arrays import map_in_order
from mm_metrics_plugin.functional.detection.geometry._runs import NO_RUNS, Runs, segment_starts, segment_sums

MAX_PIXELS = (1 << 32) - 1  # of an image: COCO's run lengths have 32 bits
MAX_OUTLINE = 1 << 22  # pixels around a polygon; pycocotools allocates memory for each
_BLOCK_MASKS = 400  # decoded at once; the arrays fit the cache
# COCO's strings: the characters, the first of those that announce another one, and the most of a number below 2**32.
_FIRST_CHAR, _CONTINUED, _LAST_CHAR, _MAX_CHARS = 48, 80, 111, 7


def read_rles(rles: Sequence[Any], names: Sequence[object] | None) -> tuple[Runs, np.ndarray]:
    """The runs of COCO's RLE dicts, and the image sizes; ``names`` are the images of the dicts, for error messages."""
    try:
        sizes, counts = [rle["size"] for rle in rles], [rle["counts"] for rle in rles]
    except (KeyError, IndexError, TypeError):
        valid = [isinstance(rle, dict) and {"size", "counts"} <= rle.keys() for rle in rles]
        row = valid.index(False) if False in valid else 0
        fail(row, names, "be a COCO RLE with 'size' and 'counts'", rles[row])
    checked = checked_sizes(sizes, names)

    def decoded(block: tuple[Any, np.ndarray]) -> Runs:
        """The runs of some rows."""
        decode, rows = block
        numbers, lengths = decode([counts[row] for row in rows.tolist()], rows, names)
        _check_counts(numbers, lengths, checked[rows], rows, names)
        return runs_of_counts(numbers, lengths)

    is_string = np.array([isinstance(values, (str, bytes)) for values in counts], dtype=bool)
    order = [np.flatnonzero(is_string), np.flatnonzero(~is_string)]
    blocks = [
        (decode, rows[start : start + _BLOCK_MASKS])
        for decode, rows in zip((_decode, _numbers), order)
        for start in range(0, len(rows), _BLOCK_MASKS)
    ]
    masks = Runs.concatenate([NO_RUNS, *map_in_order(decoded, blocks)])
    mixed = is_string.any() and not is_string.all()
    return masks.take(np.argsort(np.concatenate(order))) if mixed else masks, checked


def rles_of_segmentations(
    segmentations: Sequence[Any], sizes: Sequence[Any], names: Sequence[object] | None
) -> list[dict[str, Any]]:
    """RLE dicts of COCO's ``segmentation``; polygons are drawn."""
    image_sizes = checked_sizes(sizes, names).tolist()
    polygons: dict[int, Any] = {}
    rles: list[Any] = []
    for row, (parts, size) in enumerate(zip(segmentations, image_sizes)):
        if not isinstance(parts, dict):
            polygons[row] = parts
        elif "size" in parts and list(parts["size"]) != size:
            fail(row, names, f"have the size {size} of its image", parts["size"])
        rles.append(parts)
    if polygons:
        for row, rle in _drawn(polygons, image_sizes, names).items():
            rles[row] = rle
    return rles


def decode_strings(strings: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Run lengths from COCO's compressed strings, their number per string, and the first broken string or None.

    A character has 5 bits of a number, lowest first, and a bit that announces another one. From the fourth number on,
    a string has the differences from the number two before.
    """
    sizes = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    chars, ends = np.frombuffer(b"".join(strings), dtype=np.uint8), np.cumsum(sizes)
    last = np.flatnonzero(chars < _CONTINUED)
    width = np.diff(last, prepend=-1)
    stops = ends[sizes > 0] - 1
    broken = np.concatenate(
        [
            np.flatnonzero((chars < _FIRST_CHAR) | (chars > _LAST_CHAR)),
            stops[chars[stops] >= _CONTINUED],
            last[width > _MAX_CHARS],
        ]
    )
    if len(broken):
        return np.empty(0), np.empty(0), int(np.searchsorted(ends, broken.min(), side="right"))
    values = chars[last].astype(np.int64) - _FIRST_CHAR
    values -= (values & 16) << 1  # the sign
    longer, place = np.flatnonzero(width > 1), 1
    while len(longer):
        values[longer] = (values[longer] << 5) | ((chars[last[longer] - place] - _FIRST_CHAR) & 31)
        place += 1
        longer = longer[width[longer] > place]
    lengths = np.diff(np.searchsorted(last, ends), prepend=0)
    return _add_differences(values, lengths), lengths, None


def _add_differences(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers from their differences, of all strings at once."""
    first = segment_starts(lengths)
    sums = np.zeros(len(values) + 2, dtype=np.int64)  # sums[i + 2]: values[i], values[i - 2], values[i - 4], ...
    for parity in (0, 1):
        np.cumsum(values[parity::2], out=sums[2 + parity :: 2])
    base = np.repeat(sums[first + 2 - (lengths == 0)], lengths)  # the third number is no difference
    is_odd = ((np.arange(len(values)) ^ np.repeat(first, lengths)) & 1).astype(bool)
    np.copyto(base, np.repeat(sums[first + 1], lengths), where=is_odd)
    first = first[lengths > 0]
    base[first] = sums[first]
    return np.asarray(sums[2:] - base)


def runs_of_counts(counts: np.ndarray, lengths: np.ndarray) -> Runs:
    """Runs from COCO's run lengths: background and foreground in turn, starting with background."""
    total = np.append(0, np.cumsum(counts))
    ends = total[1:] - np.repeat(total[segment_starts(lengths)], lengths)
    paired = np.ones(len(ends), dtype=bool)
    paired[(np.cumsum(lengths) - 1)[lengths % 2 == 1]] = False  # background after the last run
    return Runs(ends[paired].reshape(-1, 2), lengths // 2).joined()


class InvalidMask(MetricInputError):
    """A mask is invalid: its row, what it must be or have, and what was found."""

    def __init__(self, row: int, of_image: str, expected: str, found: object) -> None:
        super().__init__(f"mask {row}{of_image} must {expected} (found {shortened(found)})")
        self.row, self.expected, self.found = row, expected, found


def fail(row: int, names: Sequence[object] | None, expected: str, found: object) -> NoReturn:
    """Raises the error of the mask in a row; its number is that in its image."""
    of_image = ""
    if names is not None:
        of_image, row = f" of image {names[row]!r}", sum(name == names[row] for name in names[:row])
    raise InvalidMask(row, of_image, expected, found)


def checked_sizes(sizes: Sequence[Any], names: Sequence[object] | None) -> np.ndarray:
    """(N, 2) heights and widths."""
    if not len(sizes):
        return np.empty((0, 2), dtype=np.int64)
    try:
        array = np.array(sizes).reshape(len(sizes), -1)
        valid = array.dtype.kind in "iu" and array.shape[1] == 2 and (array > 0).all()
        if valid and (array.astype(np.float64).prod(axis=1) <= MAX_PIXELS).all():
            return array.astype(np.int64)
    except (ValueError, OverflowError):  # sizes of different lengths
        pass
    for row, size in enumerate(sizes):
        numbers = list(size) if isinstance(size, (list, tuple, np.ndarray)) else []
        whole = len(numbers) == 2 and all(isinstance(number, (int, np.integer)) for number in numbers)
        if not whole or min(numbers) < 1 or int(numbers[0]) * int(numbers[1]) > MAX_PIXELS:
            found = size.tolist() if isinstance(size, np.ndarray) else size
            fail(row, names, f"have a size of height and width with 1 to {MAX_PIXELS} pixels", found)
    raise MetricInputError(f"'sizes' must have shape (N, 2) (found {sizes!r})")


def _decode(strings: list[Any], rows: np.ndarray, names: Sequence[object] | None) -> tuple[np.ndarray, np.ndarray]:
    """The run lengths of compressed strings, and their number."""
    encoded = [text.encode(errors="surrogatepass") if isinstance(text, str) else text for text in strings]
    counts, lengths, broken = decode_strings(encoded)
    if broken is not None:
        fail(int(rows[broken]), names, "have 'counts' in COCO's compressed format", strings[broken])
    return counts, lengths


def _numbers(lists: list[Any], rows: np.ndarray, names: Sequence[object] | None) -> tuple[np.ndarray, np.ndarray]:
    """The run lengths of lists, and their number."""
    arrays = []
    for row, values in zip(rows.tolist(), lists):
        try:
            array = np.asarray(values)
        except ValueError:  # lists of different lengths
            array = np.empty(())
        if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
            fail(row, names, "have 'counts' that are a string or a list of whole numbers", values)
        arrays.append(array.astype(np.int64))
    return np.concatenate(arrays), np.array([len(array) for array in arrays], dtype=np.int64)


def _check_counts(
    counts: np.ndarray, lengths: np.ndarray, sizes: np.ndarray, rows: np.ndarray, names: Sequence[object] | None
) -> None:
    """Raises an error if the run lengths of a mask do not fill its image."""
    pixels = sizes.prod(axis=1)
    outside = np.flatnonzero((counts < 0) | (counts > MAX_PIXELS))
    wrong = np.flatnonzero(segment_sums(counts, lengths) != pixels)
    if not len(outside) and not len(wrong):
        return
    if len(outside):
        index, found = int(np.searchsorted(np.cumsum(lengths), outside[0], side="right")), counts[outside[0]]
    else:
        index, found = int(wrong[0]), segment_sums(counts, lengths)[wrong[0]]
    height, width = sizes[index]
    expected = f"have run lengths from 0 that sum to {height} x {width} = {pixels[index]}"
    fail(int(rows[index]), names, expected, int(found))


def _are_plain(segmentations: Sequence[Any]) -> bool:
    """Whether all polygons are valid lists of numbers, the usual case, so that none has to be checked by itself."""
    polygons = list(chain.from_iterable(parts for parts in segmentations if isinstance(parts, list)))
    if any(type(points) is not list for points in polygons):
        return False
    lengths = np.fromiter(map(len, polygons), np.int64, len(polygons))
    if (lengths < 6).any() or (lengths % 2).any():
        return False
    try:
        xy = np.fromiter(chain.from_iterable(polygons), np.float64, int(lengths.sum())).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError):
        return False
    first, last = segment_starts(lengths // 2), np.cumsum(lengths // 2) - 1
    step = np.abs(xy - np.roll(xy, -1, axis=0)).max(axis=1)
    step[last] = np.abs(xy[last] - xy[first]).max(axis=1)
    around = np.add.reduceat(step, first) if len(first) else step
    return bool((np.abs(xy) <= MAX_OUTLINE).all() and (around <= MAX_OUTLINE).all())  # NaN is not


def _drawn(
    segmentations: dict[int, Any], sizes: Sequence[list[int]], names: Sequence[object] | None
) -> dict[int, dict[str, Any]]:
    """The RLE of the union of the polygons of each row; all polygons of one image size are drawn at once."""
    try:
        from pycocotools import mask
    except ImportError as error:
        raise ImportError("masks given as polygons need pycocotools: pip install pycocotools") from error
    plain = _are_plain(list(segmentations.values()))
    rles: dict[int, dict[str, Any]] = {}
    by_size: dict[tuple[int, ...], tuple[list[int], list[Any]]] = {}
    for row, polygons in segmentations.items():
        if not isinstance(polygons, (list, tuple)):
            fail(row, names, "be a list of polygons or a COCO RLE", polygons)
        if not polygons:
            rles[row] = {"size": sizes[row], "counts": [sizes[row][0] * sizes[row][1]]}
            continue
        if not plain or not isinstance(polygons, list):
            polygons = [_checked_polygon(polygon, row, names) for polygon in polygons]
        rows, listed = by_size.setdefault(tuple(sizes[row]), ([], []))
        rows += [row] * len(polygons)
        listed += polygons
    for size, (rows, listed) in by_size.items():
        parts: dict[int, list[dict[str, Any]]] = {}
        for row, rle in zip(rows, mask.frPyObjects(listed, *size)):
            parts.setdefault(row, []).append(rle)
        rles.update((row, each[0] if len(each) == 1 else mask.merge(each)) for row, each in parts.items())
    return rles


def _checked_polygon(points: Any, row: int, names: Sequence[object] | None) -> list[float]:
    """The coordinates of a polygon."""
    try:
        xy = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        xy = np.empty(0)
    if xy.ndim != 1 or len(xy) < 6 or len(xy) % 2 or not np.isfinite(xy).all():
        fail(row, names, "have polygons of at least three points, as a list of finite x and y", points)
    corners = xy.reshape(-1, 2)
    around = float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    if max(around, float(np.abs(xy).max())) > MAX_OUTLINE:
        fail(row, names, f"have polygons of at most {MAX_OUTLINE} pixels around and from the origin", points)
    return [float(value) for value in xy]
