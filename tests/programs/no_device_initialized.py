"""A batch initializes no device."""

import numpy as np
import torch

import pinfeed

pinfeed.Collate()([np.zeros(3)] * 2)
list(torch.utils.data.DataLoader(np.zeros((4, 3)), 2, collate_fn=pinfeed.Collate()))
print(torch.cuda.is_initialized(), torch.xpu.is_initialized())
