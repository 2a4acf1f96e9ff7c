"""Lightning: `process_group_backend="kolo"`."""
import os, torch, lightning
from lightning.pytorch.strategies import DDPStrategy


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, _):
        self.log("loss", loss := (self.layer(batch) - batch).square().mean(), sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


lightning.seed_everything(0)
world = int(os.environ["WORLD_SIZE"])
trainer = lightning.Trainer(accelerator="cpu", devices=world, strategy=DDPStrategy(process_group_backend="kolo"), max_epochs=1,
                            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8))
if trainer.is_global_zero:
    print(f"result: loss {trainer.callback_metrics['loss'].item():.4f}, backend {torch.distributed.get_backend()}")
