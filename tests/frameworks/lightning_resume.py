"""A rank of `test_lightning.py`: the samples of a stream before or after a checkpoint.

``torchrun lightning_resume.py save FOLDER``, then ``resume`` with any number of ranks.
"""

import json
import os
import sys
from pathlib import Path

from lightning_model import lightning, pinfeed, streamed, torch, train
from pinfeed.integrations.lightning import ResumeLoaders

if __name__ == "__main__":
    what, folder = sys.argv[1:]
    checkpoint = Path(folder, "saved.ckpt")
    saving = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, every_n_train_steps=4, filename="saved"
    )
    options = {"max_steps": 4, "callbacks": [ResumeLoaders(), saving], "enable_checkpointing": True}
    if what == "resume":
        options = {"ckpt_path": checkpoint, "callbacks": [ResumeLoaders()]}

    loader = pinfeed.DeviceLoader(streamed(), "cpu")
    model = train(loader, strategy="ddp", devices=int(os.environ["WORLD_SIZE"]), **options)
    rank = torch.distributed.get_rank()
    seen = [(epoch, batch["id"].tolist()) for epoch, batch in model.seen]
    Path(folder, f"{what}.{rank}").write_text(json.dumps(seen))
    torch.distributed.destroy_process_group()
