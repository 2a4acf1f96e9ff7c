//! `kolo export`: writes the weights of a run to a file that other programs load.

use std::io::{Write, stdout};
use std::path::PathBuf;

use clap::Args;
use kolo_recipe::RunFolder;
use kolo_weights::{self as weights, FORMATS, Which};

use kolo::Failure;

use super::of_run::OfRun;

/// Write the weights of a run to a file that other programs load.
///
/// What else has to be known to use them, the model's name and how images come to it (padding, mean and
/// standard deviation, names of the classes), is in the file's metadata and, as JSON, in FILE.json.
/// `kolo train --init FILE` begins a run with them.
#[derive(Args)]
#[command(after_help = formats())]
pub(crate) struct Export {
    /// The run folder, as `kolo train` has made it
    run: PathBuf,
    /// Format of the file (see below)
    #[arg(long, value_name = "NAME")]
    format: String,
    /// The file to write; must not exist, nor FILE.json
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    checkpoint: OfRun,
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let format = weights::find(&self.format)?;
        let which = self.checkpoint.which().unwrap_or(Which::Newest);
        let exported = weights::export(&RunFolder::at(self.run.clone()), which, format, &self.out)?;
        let description = &exported.description;
        if description.preprocessing.is_none() {
            let run = self.run.display();
            log::warn!(
                "{run} has no preprocessing.json: the export does not say how images come to the model"
            );
        }
        // A closed output is no error: the files are written.
        let _ = writeln!(
            stdout(),
            "{}: {} after step {}, {} tensors; how to use them is in {}",
            self.out.display(),
            description.model,
            description.step,
            exported.tensors,
            exported.description_path.display()
        );
        Ok(())
    }
}

fn formats() -> String {
    let lines = FORMATS.iter().map(|format| format!("  {:24} {}\n", format.name, format.about));
    String::from("Formats:\n") + &lines.collect::<String>()
}
