//! `kolo generate`: a language model continues a text.

use std::path::PathBuf;

use clap::Args;
use kolo_ddp::table::parse_number;
use kolo_models::{Generator, Sampling};

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
    /// Most tokens to generate; a token is a byte
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
        self.check()?;
        let Generate { temperature, top_k, top_p, seed, .. } = self;
        let mut generator = Generator::find(&self.run, self.checkpoint.which())?;
        let sampling = Sampling { temperature, top_k, top_p, seed };
        let bytes = generator.continued(&self.text, self.tokens, &sampling)?;
        let continuation = String::from_utf8_lossy(&bytes);
        if self.json {
            let tokens = bytes.len();
            return print_json(
                &serde_json::json!({ "text": self.text, "continuation": continuation, "tokens": tokens }),
            );
        }
        // Control characters could change the terminal.
        let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
        let shown = |c: char| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER };
        print(&format!("{}{}\n", self.text, continuation.chars().map(shown).collect::<String>()))
    }

    fn check(&self) -> Result<(), Failure> {
        let refused = |option, value: String, problem| {
            Err(Failure::input(format!("--{option} {value}: it must be {problem}")))
        };
        if self.tokens == 0 {
            return refused("tokens", "0".into(), "at least 1");
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refused("temperature", self.temperature.to_string(), "at least 0, and finite");
        }
        if self.top_k == Some(0) {
            return refused("top-k", "0".into(), "at least 1");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refused("top-p", self.top_p.to_string(), "greater than 0 and at most 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        generate: Generate,
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_in_a_sentence() {
        let check = |options: &[&str]| {
            let line = Line::parse_from([&["kolo", "runs/a"], options].concat());
            line.generate.check().err().map(|failure| failure.to_string())
        };
        for (options, words) in [
            (["--tokens", "0"], "--tokens 0: it must be at least 1"),
            (["--temperature=-0.5", "--seed=1"], "--temperature -0.5: it must be at least 0, and finite"),
            (["--temperature=nan", "--seed=1"], "--temperature NaN: it must be at least 0, and finite"),
            (["--top-k", "0"], "--top-k 0: it must be at least 1"),
            (["--top-p", "0"], "--top-p 0: it must be greater than 0 and at most 1"),
            (["--top-p", "1.5"], "--top-p 1.5: it must be greater than 0 and at most 1"),
        ] {
            assert_eq!(check(&options).as_deref(), Some(words));
        }
        assert_eq!(check(&["a text", "--temperature", "0", "--top-p", "1"]), None);
    }
}
