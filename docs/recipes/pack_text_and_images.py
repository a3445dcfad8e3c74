"""Packs texts with images into rows, for a vision-language model."""

import numpy as np
import PIL.Image
import pinfeed
from torch.utils.data import DataLoader

# stands for image files
rng = np.random.default_rng(0)
for i, size in enumerate([(90, 60), (200, 300), (64, 64)]):
    photo = rng.integers(0, 256, (*size, 3), np.uint8)
    PIL.Image.fromarray(photo).save(f"{i}.png")

# or Patches.from_processor(processor)
patches = pinfeed.Patches(
    14,
    mean=0.5,
    std=0.5,
    temporal=2,
    merge=2,
    min_pixels=56**2,
    max_pixels=112**2,
    grid="image_grid_thw",
)

# The file headers are enough to count the tokens of the images.
images = [PIL.Image.open(f"{i}.png") for i in range(3)]
widths, heights = np.array([image.size for image in images]).T
counts = patches.tokens(heights, widths)
print(counts)  # [ 6 12  4]

# A document has a placeholder token for each token of its image.
TEXT, IMAGE = [5, 6, 7, 8], 2  # token ids
samples = [
    {"ids": TEXT + [IMAGE] * count + TEXT, "image": images[i]}
    for i, count in enumerate(counts.tolist())
]

lengths = [len(sample["ids"]) for sample in samples]
sampler = pinfeed.samplers.PackSampler(lengths, seq_length=32, batch_size=2)
pack = pinfeed.Pack(seq_length=32, document_ids=True)
labels = pinfeed.Pack(seq_length=32, pad_value=-100, first_token=-100)
fields = {
    "input_ids": pack.from_key("ids"),
    "labels": labels.from_key("ids"),
    "pixel_values": patches.from_key("image"),
}
dataset = pinfeed.IndexedDataset(samples)
collate = pinfeed.Collate(fields)
(batch,) = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
print(batch["input_ids"].shape, batch["pixel_values"].shape)
# torch.Size([2, 32]) torch.Size([88, 1176])
