//! The tokenizer that weights are for. Files of [`export`](crate::export) and checkpoints name its contents.
//! Files of other programs do not, so their tokenizers cannot be compared.

use std::path::Path;

use kolo_data::Tokenizer;
use kolo_ddp::checkpoint::{self, Reader};
use kolo_ddp::{Kind, Layout, ParamSpec};
use kolo_recipe::{Recipe, TokenizerNote};
use serde_json::Value;

use crate::description::{self, EMBEDDING};
use crate::error::WeightsError;
use crate::formats::{FORMATS, is_transformers, weights_in};

/// Refuses another tokenizer than that of the weights at a path, where they name it.
///
/// # Errors
///
/// [`WeightsError::OtherTokenizer`].
pub fn check_tokenizer(weights: &Path, tokenizer: &Tokenizer) -> Result<(), WeightsError> {
    check(weights, tokenizer, false)
}

fn check(weights: &Path, tokenizer: &Tokenizer, is_init: bool) -> Result<(), WeightsError> {
    match tokenizer_of(weights).filter(|content| !tokenizer.is(content)) {
        None => Ok(()),
        Some(content) => {
            let is_bytes = Tokenizer::bytes().is(&content);
            Err(WeightsError::OtherTokenizer { path: weights.into(), is_bytes, is_init })
        }
    }
}

/// Refuses another tokenizer than that of the weights with which a run begins, unless it begins with other
/// vectors of the tokens.
///
/// # Errors
///
/// [`WeightsError::OtherTokenizer`].
pub fn check_tokenizer_of_init(recipe: &Recipe, tokenizer: &Tokenizer) -> Result<(), WeightsError> {
    let embedding = ParamSpec::new(EMBEDDING, vec![tokenizer.vocabulary(), 1], Kind::Frozen);
    let all = Layout::new(vec![embedding.clone()]);
    let is_new = recipe.init_skip.iter().any(|selector| selector.selects(&embedding, &all));
    recipe.init.iter().filter(|_| !is_new).try_for_each(|weights| check(weights, tokenizer, true))
}

/// Returns the name of the contents of the tokenizer that weights are for; `None` if they do not name it, or
/// cannot be read.
fn tokenizer_of(weights: &Path) -> Option<String> {
    if let Some(folder) = checkpoint::of_file(weights) {
        return TokenizerNote::content_in(&Reader::open(folder).ok()?.position().ok()?);
    }
    let file = if is_transformers(weights) { weights_in(weights).ok()? } else { weights.into() };
    // The file of the weights goes first: another one may have been put beside it.
    let own = FORMATS.iter().find_map(|format| (format.description)(&file));
    let json = own.or_else(|| String::from_utf8(kolo_durable::read(&description::path(&file)).ok()?).ok())?;
    let description: Value = serde_json::from_str(&json).ok()?;
    Some(description["tokenizer"].as_str()?.to_owned())
}
