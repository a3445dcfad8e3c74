"""Rows and lists written one by one need little memory; argv: a folder."""

import re
import resource
import sys

import numpy as np

import pinfeed

pinfeed.write_array(f"{sys.argv[1]}/small.npy", np.zeros(9))  # loads modules at first use
used = int(re.search(r"VmData:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 24_000_000,) * 2)
rows = (np.full((1 << 20,), i, np.uint8) for i in range(60))
print(pinfeed.write_array(f"{sys.argv[1]}/large.npy", rows).shape)
lists = ([i] * 1000 for i in range(6_000))
print(len(pinfeed.write_array(f"{sys.argv[1]}/lists", lists)))
