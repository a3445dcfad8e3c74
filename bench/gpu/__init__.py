"""What pinfeed does on a GPU, measured: kernels, launches, whole epochs, and a training step's wait.

It needs torch and NumPy alone. ``--device cpu --small`` runs all of it without a GPU, in a minute, to see
that it runs; the figures mean nothing then.
"""
