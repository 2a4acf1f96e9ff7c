//! `kolo export`: writes the weights of a run to a file that other programs load.

use std::path::PathBuf;

use clap::Args;
use kolo_comm::schedule::words::counted;
use kolo_recipe::RunFolder;
use kolo_weights::{self as weights, FORMATS, Which};

use kolo::Failure;
use kolo_program::output::{in_line, print, print_json};

use super::of_run::OfRun;

/// Write the weights of a run to a file or folder that other programs load.
///
/// The file's metadata, and FILE.json, say how to use the weights: the model's name, and the padding, mean,
/// standard deviation and class names of its images. `kolo train --init FILE` starts a run from the file.
#[derive(Args)]
#[command(after_help = formats())]
pub(crate) struct Export {
    /// A run folder that `kolo train` has written
    run: PathBuf,
    /// Format of the file (see below)
    #[arg(long, value_name = "NAME")]
    format: String,
    /// The file to write, or the folder for transformers. Neither it nor FILE.json may exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    checkpoint: OfRun,
    /// Print JSON: the files, the model, its steps and the number of tensors
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let format = weights::find(&self.format)?;
        let which = self.checkpoint.which().unwrap_or(Which::Newest);
        let exported = weights::export(&RunFolder::at(self.run.clone()), which, format, &self.out)?;
        let description = &exported.description;
        let has_images = !kolo_models::find(&description.model).is_ok_and(|model| model.traits().reads_text);
        if description.preprocessing.is_none() && has_images {
            let run = self.run.display();
            log::warn!(
                "{run} has no preprocessing.json: the export does not say how images come to the model"
            );
        }
        let (out, about) = (&self.out, &exported.description_path);
        if self.json {
            return print_json(&serde_json::json!({
                "weights": out.display().to_string(),
                "description": about.display().to_string(),
                "model": description.model,
                "step": description.step,
                "tensors": exported.tensors,
            }));
        }
        // A full disk behind the output is no error: the files are written.
        let _ = print(&format!(
            "{}: {} after step {}, {}; {} says how to use them\n",
            in_line(out.display()),
            description.model,
            description.step,
            counted(exported.tensors, "tensor"),
            in_line(about.display())
        ));
        Ok(())
    }
}

fn formats() -> String {
    let lines = FORMATS.iter().map(|format| format!("  {:24} {}\n", format.name, format.about));
    String::from("Formats:\n") + &lines.collect::<String>()
}
