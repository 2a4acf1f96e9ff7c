//! The tables at the end of `kolo train --help`: everything that its options can name.

use kolo_burn_train::SINKS;
use kolo_data::DATASETS;
use kolo_ddp::optimizer::{CLASSES, OPTIMIZERS};
use kolo_ddp::reduction::REDUCTIONS;
use kolo_ddp::sync::SYNCS;
use kolo_ddp::table::Setting;
use kolo_models::MODELS;

pub(super) fn tables() -> String {
    let mut text = String::from("Models:\n");
    MODELS.iter().for_each(|model| text += &format!("  {:24} {}\n", model.name(), model.about()));
    text += "\nData:\n";
    DATASETS.iter().for_each(|data| text += &format!("  {:24} {}\n", data.usage(), data.about));
    text += "\nOptimizers:\n";
    OPTIMIZERS.iter().for_each(|optimizer| text += &format!("  {:24} {}\n", optimizer.name, optimizer.about));
    text += "\nTensors, besides patterns of names in which * is any characters, as 'layer4.*':\n";
    CLASSES.iter().for_each(|(word, _, about)| text += &format!("  {word:24} {about}\n"));
    text += "Settings for them: lr_scale, which multiplies the learning rate (0: frozen), and the \
             optimizer's own.\n";
    text += "\nReductions:\n";
    for reduction in REDUCTIONS {
        text += &format!("  {:24} {}\n", reduction.name, reduction.about);
        for Setting { name, default, about, .. } in reduction.settings {
            text += &format!("    {:22} {about} [default: {default}]\n", format!("{name}="));
        }
    }
    text += "\nSynchronization:\n";
    for mode in SYNCS {
        text += &format!("  {:24} {}\n", mode.name, mode.about);
        for Setting { name, default, about, .. } in mode.settings {
            text += &format!("    {:22} {about} [default: {default}]\n", format!("{name}="));
        }
    }
    text += "\nIn the run folder, besides config.toml and checkpoints:\n";
    SINKS.iter().for_each(|sink| text += &format!("  {:24} {}\n", sink.name, sink.about));
    text
}
