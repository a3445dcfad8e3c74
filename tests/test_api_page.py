"""The public API: the names in the reference, and stable signatures."""

import collections.abc
import inspect
import operator
import re
import sys
import typing
from pathlib import Path

import pytest
import torch

import pinfeed

ELSEWHERE = {
    "integrations.lightning.ResumeLoaders",
    "integrations.ray.RayCollate",
    "integrations.transformers.packed_loader",
} | {
    f"integrations.transformers.DataCollator{what}"
    for what in (
        "ForLanguageModeling",
        "ForSeq2Seq",
        "ForTokenClassification",
        "WithFlattening",
        "WithPadding",
    )
}
SUBMODULES = ("augment", "functional", "packing", "samplers", "testing")
PAGES = Path(__file__).parents[1] / "docs" / "reference"

# A parameter in this table keeps its name, its default and, before the `*`, its position. Functions can have
# more parameters: the table contains only what must not change.
SIGNATURES = """
ArrayDataset(arrays)
ArrayDataset.from_arrow(table, columns=None)
ArrayDataset.load_state_dict(self, state)
ArrayDataset.state_dict(self)
Collate(fields=None, *, pin_memory='auto', seed=None, id_key=None)
Collate.set_epoch(self, epoch)
ConcatArray(parts, *, samples=False)
DeviceLoader(loader, device=None, fields=None, prefetch=2)
DeviceLoader.stats(self)
Field.collate(self, samples, context)
Field.gather(self, source, indices, context)
Field.apply(self, batch, host, context)
Field.from_key(self, key)
Field.allow_missing(self)
Image(mean=None, std=None, *, scale=None, input=None, output='CHW', dtype=torch.float32, channels_last=False, pad_value=None, multiple_of=None, sizes=False, mask=False, augment=None, interpolation=None, rng_stream=0)
IndexedDataset(dataset)
Jagged(dtype=None, *, offsets=None)
JaggedBatch(values, offsets)
JaggedBatch.cu_seqlens(self)
JaggedBatch.from_padded(padded, lengths=None, *, side=None)
JaggedBatch.to_nested(self)
JaggedBatch.unbind(self)
JaggedBatch.to_padded(self, pad_value=0, **keywords)
Keep()
samplers.LengthBucketSampler(lengths, batch_size=None, max_tokens=None, *, shuffle=True, seed=0, bucket_batches=800, drop_last=False, rank=None, world_size=None)
samplers.LengthBucketSampler.load_state_dict(self, state)
samplers.LengthBucketSampler.set_epoch(self, epoch)
samplers.LengthBucketSampler.state_dict(self)
Mask(image=None, *, dtype=torch.int64, augment=None, fill=255, interpolation='nearest-exact', reduce_labels=False, pad_value=None, multiple_of=None, sizes=False, rng_stream=0)
Pack(*, seq_length, pad_value=0, first_token=None, dtype=None, flat=False, position_ids=False, position_start=0, document_ids=False, cu_seqlens=False, max_seqlen=False, attention_mask=False, seq_idx=False)
samplers.PackSampler(lengths, *, seq_length, batch_size=1, strategy='best_fit', overflow='error', max_documents=None, documents_multiple_of=1, shuffle=True, seed=0, balance='count', rank=None, world_size=None)
packing.PackedStream(stream, *, seq_length, batch_size=1, window=10000, key=None, strategy='best_fit', max_documents=None, documents_multiple_of=1, shuffle=True, seed=0)
Pad(*, pad_value=0, side='right', axes=None, max_length=None, multiple_of=None, dtype=None, scale=None, lengths=None, mask=False, mask_dtype=None)
Padded(values, lengths=None, mask=None)
Patches(patch_size, mean=None, std=None, *, scale=None, merge=1, temporal=1, order='CHW', dtype=torch.float32, input=None, interpolation='bicubic', min_pixels=None, max_pixels=None, max_patches=None, multiple_of=None, min_side=1, pad_to=None, grid=True, cu_seqlens=False, mask=False)
Patches.grid_of(self, height, width)
Patches.tokens(self, height, width)
RaggedArray(values, offsets, string_type=None)
RaggedArray.from_arrow(array)
RaggedArray.from_sequences(sequences, *, dtype=None)
RaggedArray.from_strings(strings)
RaggedArray.open(path)
RaggedArray.save(self, path, *, overwrite=False)
RaggedArray.split(self, max_length, overlap=0)
Rows(sources, indices)
Stack(dtype=None, *, scale=None)
samplers.ShuffleSampler(dataset, batch_size, *, seed=0, shuffle=True, drop_last=False, rank=None, world_size=None, uneven='repeat')
StreamDataset(source, shuffle_buffer=0, seed=None, *, open_shard=None, uneven=None, on_error='raise', rank=None, world_size=None)
StreamDataset.load_state_dict(self, state)
StreamDataset.set_epoch(self, epoch)
StreamDataset.state_dict(self)
samplers.WeightedSampler(weights, *, batch_size, num_samples=None, replacement=True, seed=0, drop_last=False, rank=None, world_size=None, uneven='repeat')
testing.worker_memory_stats()
augment.CenterCrop(size, *, like='torchvision', padding_mode='constant')
augment.ColorJitter(brightness=0, contrast=0, saturation=0, *, p=1.0)
augment.Compose(transforms)
augment.RandomCrop(size, padding=None, pad_if_needed=False, fill=0, padding_mode='constant')
augment.RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0.0)
augment.RandomGrayscale(p=0.1)
augment.RandomHorizontalFlip(p=0.5)
augment.RandomResizedCrop(size, scale=(0.08, 1.0), ratio=(0.75, 1.3333333333333333))
augment.RandomVerticalFlip(p=0.5)
augment.Resize(size, *, max_size=None)
show_config()
diagnose(loader, step=None, seconds=20)
from_numpy(arrays, batch_size, *, shuffle=False, seed=None, fields=None, device=None, **dataloader_options)
functional.gather(array, indices, *, dtype=None, out=None)
get_num_threads()
functional.normalize(images, mean=None, std=None, *, scale=None, input=None, output='NCHW', dtype=torch.float32, out=None)
packing.attention_mask(document_ids)
packing.mask_mod(document_ids)
functional.pad(sequences, pad_value=0, *, side='right', axes=None, max_length=None, multiple_of=None, dtype=None, scale=None, lengths=True, mask=False, out=None)
functional.patch_grid(height, width, patch_size, *, merge=1, multiple_of=None, min_pixels=None, max_pixels=None, max_patches=None, min_side=1)
functional.patchify(images, patch_size, mean=None, std=None, *, scale=None, input=None, order='CHW', dtype=torch.float32, merge=1, temporal=1, interpolation='bicubic', out=None)
functional.permute(images, input='NHWC', output='NCHW', *, out=None)
set_worker_memory_limit(max_bytes)
set_num_threads(count)
to_numpy(loader, out=None, *, dtype=None, max_samples=None, overwrite=False, progress=False)
to_tensorflow(loader, *, in_memory=False, channels_last=False, signature=None)
functional.unbind(batch)
functional.unpad(padded, lengths=None, *, side=None, axes=None)
testing.use_isa(name)
write_array(path, samples, *, dtype=None, overwrite=False, progress=False)
"""
ATTRIBUTES = {
    "ConcatArray": ["dtype", "lengths"],
    "JaggedBatch": ["lengths", "offsets", "values"],
    "LengthBucketSampler": ["epoch", "padding_fraction", "rank", "world_size"],
    "RaggedArray": ["dtype", "lengths", "offsets", "string_type", "values"],
    "Rows": ["indices", "sources"],
    "StreamDataset": ["epoch", "skipped"],
}


def test_every_public_name_is_on_a_page_once():
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md")))
    documented = re.findall(r"^::: pinfeed\.([\w.]+)$", text, re.MULTILINE)
    names = {
        f"{module}.{name}" for module in SUBMODULES for name in getattr(pinfeed, module).__all__
    }
    assert sorted(documented) == sorted(
        set(pinfeed.__all__) - {"__version__", *SUBMODULES} | names | ELSEWHERE
    )
    assert text.count(":::") == len(documented)  # no private names
    assert "pinfeed.__version__" in text


def test_the_index_links_to_every_name():
    """Except for pages that it names as a whole."""
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for page in sorted(PAGES.glob("*.md")):
        if page.stem in ("integrations", "runtime"):
            assert f"({page.name})" in index
            continue
        for name in re.findall(r"^::: pinfeed\.([\w.]+)$", page.read_text("utf-8"), re.MULTILINE):
            if name != "augment.Geometry":  # the base class
                assert f"({page.name}#pinfeed.{name})" in index, name


def test_the_glossary_explains_the_types_of_signatures():
    glossary = (PAGES / "glossary.md").read_text(encoding="utf-8")
    explained = set()
    modules = [pinfeed, *(getattr(pinfeed, name) for name in SUBMODULES)]
    for result in (getattr(module, name) for module in modules for name in module.__all__):
        if not callable(result):
            continue
        names = vars(sys.modules[result.__module__])
        annotations = inspect.get_annotations(getattr(result, "__init__", result)).values()
        for word in set(re.findall(r"\b[A-Z]\w+", " ".join(map(str, annotations)))) & {*names}:
            is_alias = not isinstance(names[word], type) and not hasattr(typing, word)
            if is_alias and word not in vars(collections.abc):
                assert f"| `{word}` |" in glossary, (result, word)
                explained.add(word)
    assert explained >= {"DType", "Interpolation"}


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1], ids=lambda x: x.split("(")[0])
def test_signature(line):
    name, promised = line.partition("(")[::2]
    parameters = inspect.signature(operator.attrgetter(name)(pinfeed)).parameters
    names = {"torch": torch}
    exec(f"def promise({promised}: ...", names)
    for place, (key, parameter) in enumerate(
        inspect.signature(names["promise"]).parameters.items()
    ):
        assert key in parameters, f"{name} has no parameter {key}"
        assert parameters[key].default == parameter.default, key
        assert parameters[key].kind == parameter.kind, key
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            assert [*parameters].index(key) == place, key


def test_names_of_submodules_in_the_package():
    for name, home in {
        "RandomCrop": "augment",
        "ShuffleSampler": "samplers",
        "pad": "functional",
    }.items():
        message = f"^module 'pinfeed' has no attribute '{name}'; use pinfeed.{home}.{name}$"
        with pytest.raises(AttributeError, match=message):
            getattr(pinfeed, name)
    with pytest.raises(
        AttributeError, match=r"^module 'pinfeed' has no attribute 'Imag'$"
    ) as caught:
        pinfeed.Imag  # noqa: B018
    assert caught.value.name == "Imag"  # then Python's traceback suggests Image


def test_attributes():
    ragged = pinfeed.RaggedArray.from_sequences([[1], [2, 3]])
    objects = [
        pinfeed.ConcatArray([ragged, ragged]),
        pinfeed.Collate(pinfeed.Jagged())([[1], [2, 3]]),
        pinfeed.samplers.LengthBucketSampler([1, 2], 1),
        ragged,
        pinfeed.ArrayDataset(ragged).__getitems__([1]),
        pinfeed.StreamDataset([1]),
    ]
    assert [type(one).__name__ for one in objects] == list(ATTRIBUTES)
    for one, names in zip(objects, ATTRIBUTES.values(), strict=True):
        assert [name for name in names if not hasattr(one, name)] == []
