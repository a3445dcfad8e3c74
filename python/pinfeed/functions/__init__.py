"""The kernels over arrays and tensors."""
