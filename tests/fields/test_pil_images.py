"""PIL images, read in place or converted, equal arrays of the same pixels."""

import gc
import io
import threading
import tracemalloc

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arrays import assert_same_bits, random_array
from pinfeed import augment
from pinfeed.fields.pil_images import pil_pixels

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = (45, 37)
VIEW = augment.Compose([augment.RandomResizedCrop(12), augment.RandomHorizontalFlip()])
CROP = augment.Compose([augment.RandomCrop(30, padding=2), augment.RandomHorizontalFlip()])
COLORS = ["RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "LA", "L", "F"]
MASKS = ["P", "1", "I", "I;16"]
LENDS = hasattr(PIL.Image.Image, "__arrow_c_array__")


def image_of(mode, seed=0, size=SIZE):
    if mode == "F":
        values = random_array((size[1], size[0]), seed=seed)
        return PIL.Image.fromarray(values.astype(np.float32) / 255)
    length = len(PIL.Image.new(mode, size).tobytes())
    return PIL.Image.frombytes(mode, size, random_array((length,), seed=seed).tobytes())


@pytest.fixture(params=["one block", "blocks"])
def blocks(request):
    """Returns whether Pillow stores the image's rows in several blocks, as it does above 16 MB."""
    size = PIL.Image.core.get_block_size()
    if request.param == "blocks":
        PIL.Image.core.set_block_size(4096)
        PIL.Image.core.clear_cache()
    yield request.param == "blocks"
    PIL.Image.core.set_block_size(size)


def collated(field, images):
    """Returns a batch of the field, with equal random draws each time."""
    collate = pinfeed.Collate({"x": field, "i": pinfeed.Stack()}, seed=0, id_key="i")
    return collate([{"x": image, "i": i} for i, image in enumerate(images)])["x"]


def fields(mode):
    if mode in MASKS:
        options = {"input": "HW", "output": "HW", "dtype": torch.int64}
        return [pinfeed.Image(**options), pinfeed.Image(**options, augment=VIEW)]
    options = {"input": "HW"} if mode in ("L", "F") else {}
    view = options | {"interpolation": "bilinear", "augment": VIEW}
    images = [
        pinfeed.Image(**options),
        pinfeed.Image(**options, channels_last=True, dtype=torch.bfloat16),
        pinfeed.Image(0.5, 0.25, **view),
        pinfeed.Image(0.5, 0.25, **options | view | {"augment": CROP}),
    ]
    if mode != "F":
        images.append(pinfeed.Image(**view, dtype=torch.uint8))
        images.append(pinfeed.Image(100, 50, scale=1, **options))
    if mode == "RGB":
        images.append(
            pinfeed.Image(MEAN, STD, **view | {"augment": [VIEW, augment.ColorJitter(0.3, 0.3)]})
        )
        images.append(
            pinfeed.Image(MEAN, STD, **view | {"augment": [VIEW, augment.RandomErasing(1)]})
        )
        images.append(pinfeed.Image(MEAN, STD, output="HWC"))
    return images


@pytest.mark.kernels
@pytest.mark.parametrize("mode", COLORS + MASKS)
def test_images_of_every_mode_equal_arrays(mode, blocks, num_threads):
    images = [image_of(mode, seed) for seed in range(5)]
    # In mode "1", true is byte 255, in bool arrays too.
    arrays = [np.array(image, np.uint8 if mode == "1" else None) for image in images]
    for field in fields(mode):
        assert_same_bits(collated(field, images), collated(field, arrays))


def test_lent_memory(blocks):
    for mode in ["RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LA"]:
        image = image_of(mode)
        pixels = pil_pixels(image)
        assert isinstance(pixels, np.ndarray) == (LENDS and not blocks), mode
        if not isinstance(pixels, np.ndarray):
            continue
        assert np.array_equal(pixels, np.asarray(image))
        assert not pixels.flags.writeable
        image.putpixel((2, 1), (7,) * pixels.shape[2])  # the image owns the memory
        assert (pixels[1, 2] == 7).all()


# Memory that Pillow doesn't own, whose lending crashes 11.3 and 12.
NOT_LENT = {
    "gray array": PIL.Image.fromarray(random_array((9, 21))),
    "RGBA array": PIL.Image.fromarray(random_array((9, 21, 4))),
    "no columns": PIL.Image.new("RGB", (0, 3)),
    "no rows": PIL.Image.new("L", (3, 0)),
}


@pytest.mark.parametrize("image", NOT_LENT.values(), ids=NOT_LENT)
def test_images_that_do_not_lend_memory(image):
    assert not isinstance(pil_pixels(image), np.ndarray)
    field = pinfeed.Image(input="HW" if image.mode == "L" else "HWC")
    assert_same_bits(collated(field, [image]), collated(field, [np.asarray(image)]))


def test_pixels_outlive_their_image():
    image = image_of("RGB")
    expected = np.array(image)
    pixels = pil_pixels(image)
    image.close()
    del image
    gc.collect()
    others = [image_of("RGB", seed) for seed in range(1, 4)]
    if LENDS:
        assert np.array_equal(pixels, expected)
    del others


def test_batches_do_not_keep_images_alive(blocks):
    images = [image_of("RGB", seed) for seed in range(3)]
    expected = torch.from_numpy(np.stack([np.array(image) for image in images]))
    batch = pinfeed.Collate(pinfeed.Image(dtype=torch.uint8, output="HWC"))(images)
    for image in images:
        image.paste((1, 2, 3), (0, 0, *SIZE))
        image.close()
    assert torch.equal(batch, expected)
    message = r"sample 0: Pillow can't read the image: .*closed.*; call its load\(\) or convert\(\)"
    with pytest.raises(ValueError, match=message):
        pinfeed.Collate(pinfeed.Image())(images)


def encoded(format, mode="RGB", size=SIZE, **options):
    file = io.BytesIO()
    image_of(mode, size=size).save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "TIFF", "PPM", "ICO"])
def test_files_that_are_not_loaded_yet(format, tmp_path):
    path = tmp_path / f"image.{format}"
    path.write_bytes(encoded(format, size=(16, 16)))
    with PIL.Image.open(path) as file:
        expected = np.array(file.convert("RGB"))
    for opened in (path, io.BytesIO(path.read_bytes())):
        with PIL.Image.open(opened) as file:
            batch = pinfeed.Collate(pinfeed.Image(dtype=torch.uint8, output="HWC"))([file])
        assert np.array_equal(batch[0], expected)


def test_jpegs_in_draft_mode():
    file = encoded("JPEG", size=(160, 128))
    drafts = [PIL.Image.open(io.BytesIO(file)) for _ in range(2)]
    for draft in drafts:
        assert draft.draft("RGB", (40, 32)) is not None
    result = pinfeed.Collate(pinfeed.Image(dtype=torch.uint8, output="HWC"))(drafts[:1])
    assert result.shape == (1, 32, 40, 3)
    assert np.array_equal(result[0], np.asarray(drafts[1]))


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_truncated_files(format):
    good = image_of("RGB")
    bad = PIL.Image.open(io.BytesIO(encoded(format)[:-400]))
    message = (
        r"\['x'\] of sample 1: Pillow can't read the image: .*truncated.*; leave this file out"
    )
    with pytest.raises(OSError, match=message):
        pinfeed.Collate({"x": pinfeed.Image()})([{"x": good}, {"x": bad}])


def test_files_closed_too_early(tmp_path):
    encoded_image = encoded("PNG")
    (tmp_path / "a.png").write_bytes(encoded_image)
    with PIL.Image.open(tmp_path / "a.png") as lazy:
        pass
    with pytest.raises(
        ValueError, match=r"sample 1: Pillow can't read .*a.png: .*closed; call its"
    ):
        pinfeed.Collate(pinfeed.Image())([image_of("RGB"), lazy])
    with PIL.Image.open(tmp_path / "a.png") as loaded:
        loaded.load()
    assert pinfeed.Collate(pinfeed.Image())([loaded]).shape == (1, 3, *SIZE[::-1])


class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return image_of("RGB", index, (45 + index, 37))


def test_workers(blocks):
    """Padded images in a forked worker, for two epochs."""
    field = pinfeed.Image(MEAN, STD, pad_value=0)
    collate, images = pinfeed.Collate(field), [np.asarray(Photos()[i]) for i in range(12)]
    expected = [collate(images[i : i + 4]) for i in (0, 4, 8)]
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    loader = DataLoader(Photos(), 4, collate_fn=collate, **options)
    for _ in range(2):
        for batch, other in zip(loader, expected, strict=True):
            assert_same_bits(batch[0], other[0])


def test_threads_that_share_images(blocks):
    images = [image_of("RGB", seed) for seed in range(8)]
    field = pinfeed.Image(MEAN, STD, augment=augment.Resize(20))
    expected = collated(field, [np.array(image) for image in images])
    wrong = []

    def work():
        for _ in range(5):
            if not torch.equal(collated(field, images), expected):
                wrong.append(threading.current_thread())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_patches(blocks):
    field = pinfeed.Patches(4, MEAN, STD, min_pixels=16, max_pixels=400)
    images = [[image_of("RGB"), image_of("RGB", 1)], image_of("RGB", 2), None]
    arrays = [[np.array(part) for part in images[0]], np.array(images[1]), None]
    for part, other in zip(
        pinfeed.Collate(field)(images), pinfeed.Collate(field)(arrays), strict=True
    ):
        assert torch.equal(part, other)


def test_patches_convert_images_one_at_a_time():
    array = random_array((64, 64, 4))
    images = [PIL.Image.fromarray(array) for _ in range(16)]  # an array's memory, not lent
    collate = pinfeed.Collate(pinfeed.Patches(8, 0, 1))
    pinfeed.set_num_threads(1)
    collate(images)
    tracemalloc.start()
    collate(images)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 * array.nbytes


def test_a_subclass_that_changes_while_it_is_read():
    """The first reported size determines the memory that is read."""

    class Growing(PIL.Image.Image):
        @property
        def __array_interface__(self):
            return np.zeros((5, 5, 3), np.uint8).__array_interface__

    image = Growing()
    image.im, image._mode, image._size = PIL.Image.new("RGB", (4, 4)).im, "RGB", (4, 4)
    image.readonly = 1
    with pytest.raises(ValueError, match="changed its size or mode"):
        pinfeed.Collate(pinfeed.Image())([image])


@pytest.mark.parametrize(
    ("first", "second"), [("RGB", "YCbCr"), ("HSV", "RGB"), ("LAB", "RGB"), ("RGBA", "CMYK")]
)
@pytest.mark.parametrize(
    "field", [pinfeed.Image(), pinfeed.Image(dtype=torch.uint8), pinfeed.Patches(2)], ids=repr
)
def test_modes_of_equally_many_channels_do_not_mix(field, first, second):
    image = PIL.Image.new("RGB", (4, 4), (10, 200, 30))
    one, other = PIL.Image.new(first, (4, 4)), image.convert(second)
    with pytest.raises(
        ValueError, match=rf"sample 1: .*one mode, such as '{first}', got '{second}'"
    ):
        pinfeed.Collate(field)([one, other])
    pinfeed.Collate(field)([other, other])
    if first == "RGB":
        pinfeed.Collate(field)([one, other.convert("RGB")])
