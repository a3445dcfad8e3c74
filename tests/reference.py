"""Reference implementations of pinfeed's functions in exact arithmetic and plain NumPy.

bfloat16, which NumPy lacks, is represented by its bits in uint16.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np


def images(batch, mean=None, std=None, scale=1 / 255, dtype="float32", input="NHWC", output="NCHW"):
    """Returns the batch of `pinfeed.functional.normalize` and `pinfeed.Image` for uint8 images."""
    return normalized(batch, mean, std, scale, "uint8", dtype, input, output)


def constants(mean, std, scale, channels):
    """Returns ``scale / std`` and ``-mean / std`` of each channel: float64, then rounded to float32."""
    mean = np.float64(0.0 if mean is None else mean)
    std = np.float64(1.0 if std is None else std)
    per_channel = [
        np.broadcast_to(values.astype(np.float32), (channels,)).tolist()
        for values in (np.asarray(scale / std), np.asarray(-mean / std))
    ]
    return tuple(per_channel)


def gray(image):
    """Returns the gray of uint8 (3, H, W) by torchvision's formula, as whole numbers in float64 (H, W)."""
    # These products and sums are exact in float64, so each is rounded once.
    weights = np.float32([0.2989, 0.587, 0.114]).astype(np.float64)
    total = np.float32(0)
    for plane, weight in zip(image.astype(np.float64), weights, strict=True):
        total = np.float32(plane * weight + total)
    return np.floor(total).astype(np.float64)


def with_contrast(image, factor):
    """Returns uint8 (C, H, W) with another contrast, like torchvision."""
    values = gray(image) if len(image) == 3 else image.astype(np.float64)
    mean = np.float32(values.sum(dtype=np.float64)) / np.float32(values.size)
    return _blended(image, mean, factor)


def with_saturation(image, factor):
    """Returns uint8 (C, H, W) with another saturation, like torchvision; 0 makes it gray."""
    if len(image) == 1:
        return image
    return _blended(image, gray(image).astype(np.float32), factor)


def _blended(image, center, factor):
    """Returns bytes moved away from or towards the center; the sum is rounded once and clamped."""
    products = image.astype(np.float32) * np.float32(factor)
    sums = multiply_add(np.broadcast_to(center, image.shape), np.float32(1 - factor), products)
    return np.clip(sums, 0, 255).astype(np.uint8)


def patches(clip, size, merge=1, temporal=1, order="CHW"):
    """Returns the result of `pinfeed.functional.patchify` for a clip: values of shape (T, H, W, C)."""
    last = clip[-1:]
    clip = np.concatenate([clip, *[last] * (-len(clip) % temporal)])
    times, height, width, channels = clip.shape
    axes = (times // temporal, temporal, height // size // merge, merge, size)
    cut = clip.reshape(*axes, width // size // merge, merge, size, channels)
    # time, frame, y block, y in it, row, x block, x in it, column, channel
    inner = (8, 1, 4, 7) if order == "CHW" else (1, 4, 7, 8)
    cut = cut.transpose(0, 2, 5, 3, 6, *inner)
    return cut.reshape(-1, channels * temporal * size * size)


def normalized(batch, mean, std, scale, source, dtype, input, output):
    """Returns the batch of `pinfeed.Image` for images of any dtype."""
    if scale is None:
        scale = {"uint8": 1 / 255, "uint16": 1 / 65535, "int16": 1 / 32767}.get(source, 1)
    if input == "NHW":
        batch, input = batch[..., np.newaxis], "NHWC"
    pixels = permute(batch, input, "NHWC")
    if dtype == "uint8":
        return permute(pixels, "NHWC", output)
    result = np.empty(pixels.shape, np.float32)
    for c, pair in enumerate(zip(*constants(mean, std, scale, pixels.shape[-1]), strict=True)):
        plane = pixels[..., c]
        of_bytes = source == "uint8"
        result[..., c] = (
            _every_byte(*pair)[plane] if of_bytes else multiply_add(widened(plane, source), *pair)
        )
    return permute(rounded(result, dtype), "NHWC", output)


@functools.cache
def _every_byte(scale, bias):
    return multiply_add(np.arange(256, dtype=np.float32), scale, bias)


def widened(array, dtype):
    """Returns the float32 values of a dtype with at most 32 bits."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def multiply_add(values, scale, bias):
    """Returns ``values * scale + bias`` of float32, rounded once to float32.

    A product of two float32 is exact in float64. The sum is rounded to odd, which doesn't affect a second
    rounding to fewer bits.
    """
    with np.errstate(all="ignore"):
        product, bias = values.astype(np.float64) * scale, np.float64(bias)
        total = product + bias
        shadow = total - product
        error = (product - (total - shadow)) + (bias - shadow)
        bits = total.view(np.int64)
        too_large = (error < 0) == (total > 0)
        odd = np.where(too_large, bits - 1, bits) | 1
        is_inexact = np.isfinite(total) & (error != 0)
        return np.where(is_inexact, odd, bits).view(np.float64).astype(np.float32)


def exact_multiply_add(value, scale, bias):
    """Returns the same for one number, with fractions."""
    exact = Fraction(value) * Fraction(scale) + Fraction(bias)
    return _to_float32(exact, sign_of_zero=value * scale + bias)


def _to_float32(exact, sign_of_zero):
    if exact == 0:
        return sign_of_zero  # a Fraction has no -0
    exponent = max(math.frexp(exact)[1], -125)  # subnormal numbers share one exponent
    unit = Fraction(2) ** (exponent - 24)
    rounded_value = round(exact / unit) * unit  # Fractions round ties to even
    if abs(rounded_value) >= 2**128:
        return math.copysign(math.inf, exact)
    return float(rounded_value)


def rounded(values, dtype):
    """Returns float32 values in another dtype, rounded to nearest, ties to even."""
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        upper = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), upper)
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(dtype)


def permute(array, input, output):
    """Returns the array with its axes, named by letters, in another order."""
    return np.transpose(array, [input.index(letter) for letter in output])


def gather(array, indices):
    """Returns rows by number; negative numbers count from the end."""
    return array[np.array(list(indices), dtype=object).astype(np.int64)]


def pad(samples, pad_value, side="right", axes=None, max_length=None, multiple_of=1, min_sizes=()):
    """Returns the values, lengths and mask of `pinfeed.functional.pad` for ndarrays.

    multiple_of: one for all ``axes`` or one for each.
    room: minimum sizes along ``axes``, such as the sizes of an ``out``.
    """
    rank, left = samples[0].ndim, side == "left"
    chosen = [0 if axes is None else axes] if not isinstance(axes, tuple) else axes
    chosen = [axis % rank for axis in chosen]
    for axis in chosen:
        samples = [_cut(sample, axis, max_length, left) for sample in samples]
    box = [max(sample.shape[axis] for sample in samples) for axis in range(rank)]
    for axis, least in itertools.zip_longest(chosen, min_sizes, fillvalue=0):
        multiple = multiple_of[chosen.index(axis)] if np.ndim(multiple_of) else multiple_of
        multiples = max(-(-box[axis] // multiple), int(multiple > 1))
        box[axis] = max(multiples * multiple, least)

    values = np.full((len(samples), *box), pad_value, samples[0].dtype)
    mask = np.zeros((len(samples), *(box[axis] for axis in chosen)), np.bool_)
    for row, mask_row, sample in zip(values, mask, samples, strict=True):
        row[_corner(row.shape, sample.shape, left)] = sample
        mask_row[_corner(mask_row.shape, [sample.shape[axis] for axis in chosen], left)] = True
    lengths = np.array([[sample.shape[axis] for axis in chosen] for sample in samples], np.int64)
    return values, lengths if isinstance(axes, tuple) else lengths[:, 0], mask


def _cut(sample, axis, max_length, left):
    size = sample.shape[axis]
    keep = size if max_length is None else min(size, max_length)
    rows = np.s_[size - keep :] if left else np.s_[:keep]
    return np.moveaxis(np.moveaxis(sample, axis, 0)[rows], 0, axis)


def _corner(box, shape, left):
    """Returns the slices that hold data of a shape."""
    sizes = zip(box, shape, strict=True)
    return tuple(
        slice(min_sizes - size if left else 0, min_sizes if left else size)
        for min_sizes, size in sizes
    )


def jagged(samples, max_length=None, side="right"):
    """Returns values and offsets of the concatenated samples."""
    samples = [_cut(sample, 0, max_length, side == "left") for sample in samples]
    ends = itertools.accumulate((len(sample) for sample in samples), initial=0)
    return np.concatenate(samples), np.array(list(ends), np.int64)


def padded_images(
    samples, pad_value, multiple_of=1, input="HWC", output="CHW", dtype="float32", **constants
):
    """Returns the batch, sizes and mask of `pinfeed.Image` for uint8 images of any sizes."""
    normalized = [
        images(sample[np.newaxis], dtype=dtype, input="N" + input, output="NHWC", **constants)[0]
        for sample in samples
    ]
    sizes = np.array([image.shape[:2] for image in normalized], np.int64)
    height, width = -(-sizes.max(axis=0) // multiple_of) * multiple_of
    if dtype == "uint8":
        fill = np.array(pad_value, np.uint8)
    else:
        with np.errstate(over="ignore"):
            fill = rounded(np.array(pad_value, np.float32, ndmin=1), dtype)
    batch = np.full((len(samples), height, width, normalized[0].shape[2]), fill)
    mask = np.zeros(batch.shape[:3], np.bool_)
    for i, (rows, columns) in enumerate(sizes):
        batch[i, :rows, :columns] = normalized[i]
        mask[i, :rows, :columns] = True
    return permute(batch, "NHWC", "N" + output), sizes, mask


def uniform(seed, epoch, index, step):
    """Returns the two numbers in [0, 1) that a step of a geometry draws for a sample."""
    return tuple((number >> 11) / 2**53 for number in random_bits(seed, epoch, index, step))


def random_bits(seed, epoch, index, step):
    """Returns the two 64-bit integers behind `uniform`.

    Philox4x32-10, as Random123 and cuRAND define it; the key follows from seed and epoch.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch, 2))
    key = int(sequence.generate_state(1, np.uint64)[0])
    low = 0xFFFFFFFF
    c, k = [index & low, index >> 32, step & low, step >> 32], [key & low, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & low, (first >> 32) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c[1] << 32 | c[0], c[3] << 32 | c[2]


def random_crop(image, draws, size, padding=(0, 0, 0, 0), pad_if_needed=False, **border):
    """Returns torchvision's RandomCrop of an (H, W, C) image; padding is left, top, right, bottom."""
    left, top, right, bottom = padding
    if pad_if_needed:
        lacking = [
            max(expected - side - added, 0)
            for expected, side, added in zip(
                size, image.shape, (top + bottom, left + right), strict=False
            )
        ]
        top, bottom, left, right = (
            added + lacking[axis] for added, axis in ((top, 0), (bottom, 0), (left, 1), (right, 1))
        )
    padded = padded_image(image, ((top, bottom), (left, right)), **border)
    first = [
        int(draw * (side - expected + 1))
        for draw, side, expected in zip(draws, padded.shape, size, strict=False)
    ]
    return padded[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]


def center_crop(image, size):
    """Returns torchvision's CenterCrop of an (H, W, C) image."""
    lacking = [max(expected - side, 0) for expected, side in zip(size, image.shape, strict=False)]
    image = padded_image(image, [(n // 2, (n + 1) // 2) for n in lacking])
    first = [round((side - n) / 2) for side, n in zip(image.shape, size, strict=False)]
    return image[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]


def resized_size(height, width, size, max_size=None):
    """Returns the height and width after torchvision's Resize."""
    if isinstance(size, tuple):
        return size
    short, long = sorted((height, width))
    new_short = max_size * short // long if size is None else size
    new_long = max_size if size is None else size * long // short
    if size is not None and max_size is not None and new_long > max_size:
        new_short, new_long = max_size * new_short // new_long, max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resized(image, size, interpolation):
    """Returns a resized (H, W, C) image of float32: rows first, every operation rounded once."""
    for axis in (1, 0):
        pixels = np.moveaxis(image, axis, 0)
        outputs = []
        for i in range(size[axis]):
            total = np.zeros(pixels.shape[1:], np.float32)
            for number, weight in _weights(len(pixels), size[axis], i, interpolation):
                if weight != 0:
                    with np.errstate(all="ignore"):
                        total = total + pixels[number] * weight
            outputs.append(total)
        image = np.moveaxis(np.stack(outputs), 0, axis)
    return image


def _weights(before, after, i, interpolation):
    """Returns the input pixels of output pixel i along an axis, and their antialiased weights."""
    scale = before / after
    wide, radius = max(scale, 1.0), 2 if interpolation == "bicubic" else 1
    center, support = scale * (i + 0.5), radius * wide
    numbers = range(max(int(center - support + 0.5), 0), min(int(center + support + 0.5), before))
    curve = _cubic if interpolation == "bicubic" else lambda x: max(1 - x, 0.0)
    weights = [curve(abs((number - center + 0.5) * (1 / wide))) for number in numbers]
    total = sum(weights)
    return [(n, np.float32(weight / total)) for n, weight in zip(numbers, weights, strict=True)]


def _cubic(x):
    """Returns Keys' cubic, with a = -1/2."""
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0


def random_window(height, width, draws, scale, ratio):
    """Returns torchvision's RandomResizedCrop: top, left, height and width; two pairs of draws per try."""
    for try_area, try_place in zip(draws[::2], draws[1::2], strict=True):
        area = height * width * (scale[0] + try_area[0] * (scale[1] - scale[0]))
        low, high = map(math.log, ratio)
        aspect = math.exp(low + try_area[1] * (high - low))
        columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < columns <= width and 0 < rows <= height:
            top, left = (
                int(draw * (side - size + 1))
                for draw, side, size in zip(
                    try_place, (height, width), (rows, columns), strict=True
                )
            )
            return top, left, rows, columns
    rows, columns = height, width
    if width / height < ratio[0]:
        rows = max(round(width / ratio[0]), 1)
    elif width / height > ratio[1]:
        columns = max(round(height * ratio[1]), 1)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def padded_image(image, sides, fill=0, padding_mode="constant"):
    """Returns an (H, W, C) image with pixels added before and after its rows and columns."""
    if padding_mode != "constant":
        return np.pad(image, [*sides, (0, 0)], mode=padding_mode)
    (top, bottom), (left, right) = sides
    height, width, channels = image.shape
    padded = np.empty((height + top + bottom, width + left + right, channels), image.dtype)
    padded[:] = fill
    padded[top : top + height, left : left + width] = image
    return padded
