"""Text and images in packed rows: the loss of a Qwen2-VL equals the loss of separate documents."""

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import pinfeed

START, IMAGE, END, TEXT = 1, 2, 3, 4  # tokens; text from TEXT on
LENGTH = 64


def tiny_model():
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    text = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 2, "rope_parameters": rope}
    text |= {"bos_token_id": None, "eos_token_id": None}
    ids = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END}
    torch.manual_seed(0)
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    )


def test_the_loss_of_packed_rows_equals_the_loss_of_single_documents():
    model, rng = tiny_model(), np.random.default_rng(0)
    processor = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=112 * 112)
    patches = pinfeed.Patches.from_processor(processor)
    photos = [
        rng.integers(0, 256, (*size, 3), np.uint8) for size in [(90, 60), (200, 300), (64, 64)]
    ]

    samples = []
    for photo in photos:
        before, after = rng.integers(TEXT, 64, (2, 8)).tolist()
        count = int(patches.tokens(*photo.shape[:2]))
        ids = [*before, START, *[IMAGE] * count, END, *after]
        row = torch.tensor([ids])
        grid = torch.tensor([[1, *patches.grid_of(*photo.shape[:2])]])
        positions, _ = model.model.get_rope_index(row, (row == IMAGE).int(), grid)
        samples.append({"ids": ids, "image": photo})
        samples[-1] |= dict(zip("thw", positions[:, 0].numpy(), strict=True))

    lengths = [len(sample["ids"]) for sample in samples]
    sampler = pinfeed.samplers.PackSampler(lengths, seq_length=LENGTH, batch_size=2)
    labels = pinfeed.Pack(seq_length=LENGTH, pad_value=-100, first_token=-100)
    fields = {
        "input_ids": pinfeed.Pack(seq_length=LENGTH, document_ids=True).from_key("ids"),
        "labels": labels.from_key("ids"),
        **{axis: pinfeed.Pack(seq_length=LENGTH) for axis in "thw"},
        "pixel_values": patches.from_key("image"),
    }
    dataset, collate = pinfeed.IndexedDataset(samples), pinfeed.Collate(fields)
    (batch,) = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

    def summed_loss(batch, labels, **inputs):
        names = ("input_ids", "pixel_values", "image_grid_thw")
        logits = model(**{name: batch[name] for name in names}, **inputs).logits[:, :-1]
        targets = labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="sum")

    mask = pinfeed.packing.attention_mask(batch["document_ids"])
    positions = torch.stack([batch[axis] for axis in "thw"])
    to_patches = pinfeed.Collate({"pixel_values": patches.from_key("image")})
    with torch.no_grad():
        packed = summed_loss(batch, batch["labels"], attention_mask=mask, position_ids=positions)
        alone = 0
        for sample in samples:
            ids = torch.tensor([sample["ids"]])
            one = to_patches([sample]) | {"input_ids": ids}
            alone += summed_loss(one, ids, mm_token_type_ids=(ids == IMAGE).int())
    assert batch["input_ids"].shape == (2, LENGTH)
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=0)
