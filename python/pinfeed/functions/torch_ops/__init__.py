"""``torch.ops.pinfeed``: the kernels as torch ops, for compiled and exported graphs.

Importing pinfeed registers them. Each has an overload ``out`` that writes into given tensors
and returns nothing.

``normalize_images(images, mean=None, std=None, *, scale=1/255, input="NHWC", output="NCHW",
dtype=torch.float32, channels_last=False, indices=None, sizes=None, height=None, width=None,
pad_value=None)``
    The arithmetic and bits of `pinfeed.normalize`. mean and std are lists, of one value or one
    for each channel. ``dtype`` may be uint8, which only permutes. ``indices``, int64 (N,), choose
    images; ``sizes``, int64 (N, 2), say how large each image of the batch is, at the top left of
    its place of ``height`` × ``width``; the rest becomes ``pad_value``, None for 0.

``permute(images, input="NHWC", output="NCHW")``
    `pinfeed.permute`.

``pad_jagged(values, offsets, length, *, max_length=None, pad_value=None, side="right",
time_major=False)``
    Sample i, ``values[offsets[i]:offsets[i + 1]]``, becomes row i of a tensor (B, length, ...),
    or (length, B, ...). Samples longer than ``max_length`` or ``length`` are cut on the side where
    padding goes. ``pad_value`` is a float64 number that the dtype can hold; None is 0.

``pad_jagged_with_mask(...)``
    The same, with the lengths that are left, int64 (B,), and a mask, bool (B, length).

``unpad_to_jagged(padded, offsets, total, *, max_length=None, side="right", time_major=False)``
    The way back: values (total, ...). Rows that the batch doesn't have, because they were cut or
    belong to no sample, become 0.

Sizes that depend on data, ``length`` and ``total``, are arguments, so that nothing has to wait for
a device. What is inside ``indices``, ``sizes`` and ``offsets`` is checked on the CPU; on a device
the kernels never leave their tensors, take sizes and offsets out of range for the nearest in range,
and stop the process's CUDA context at a bad index, as torch's own indexing does.
"""

from pinfeed.functions.torch_ops.library import has_kernels, load, require, status, use_isa

__all__ = ["has_kernels", "load", "require", "status", "use_isa"]
