//! `kolo generate`: a language model continues a text.

use std::path::PathBuf;

use clap::Args;
use kolo_ddp::table::parse_number;
use kolo_models::{Continuation, Generator, Sampling};

use kolo::Failure;
use kolo_program::output::{print, print_json};

use super::of_run::OfRun;

/// Continue a text with a trained language model.
///
/// The same text, options and weights give the same continuation. It ends after --tokens, or where the model
/// ends the document.
#[derive(Args)]
pub(crate) struct Generate {
    /// A run folder, a checkpoint, or what `kolo export` has written
    run: PathBuf,
    /// Beginning of the text; without it the model begins a document
    #[arg(default_value = "", hide_default_value = true)]
    text: String,
    #[command(flatten)]
    checkpoint: OfRun,
    /// Most tokens to generate; a token is a byte, or a piece of text if the run has a tokenizer
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// Below 1, likely tokens become likelier; 0 always takes the likeliest
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, value_parser = parse_number)]
    temperature: f64,
    /// Draw from this many of the likeliest tokens [default: all]
    #[arg(long, value_name = "TOKENS")]
    top_k: Option<usize>,
    /// Draw from the fewest likeliest tokens that have this probability together
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_number)]
    top_p: f64,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON: text, continuation, number of tokens
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Generate { temperature, top_k, top_p, seed, .. } = self;
        let sampling = Sampling { temperature, top_k, top_p, seed };
        sampling.check()?;
        if self.tokens == 0 {
            return Err(Failure::input("--tokens 0: it must be at least 1"));
        }
        let mut generator = Generator::find(&self.run, self.checkpoint.which())?;
        let Continuation { text: continuation, tokens } =
            generator.continued(&self.text, self.tokens, &sampling)?;
        if self.json {
            return print_json(
                &serde_json::json!({ "text": self.text, "continuation": continuation, "tokens": tokens }),
            );
        }
        // Control characters could change the terminal.
        let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
        let shown = |c: char| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER };
        let text = self.text + &continuation;
        print(&(text.chars().map(shown).collect::<String>() + "\n"))
    }
}
