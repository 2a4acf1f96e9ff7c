//! Scores of GPT-2 for each token of a text, from a folder for transformers: `f32`, little-endian, a row of
//! the vocabulary for each byte of the text.
//!
//! `cargo run -p kolo-models --example gpt2_scores -- FOLDER TEXT OUT`

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_models::Gpt2Config;
use kolo_weights::WeightsFile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, text, out] = arguments.as_slice() else { return Err("arguments: FOLDER TEXT OUT".into()) };
    let folder = Path::new(folder);
    let weights = WeightsFile::read(folder)?;
    let device = Device::flex();
    let model = weights.into_module(Gpt2Config::of(&WeightsFile::read(folder)?, folder)?.init(0, &device))?;
    let tokens: Vec<i32> = text.bytes().map(i32::from).collect();
    let tokens = TensorData::new(tokens, [1, text.len()]);
    let scores = model.scores(Tensor::<2, Int>::from_data(tokens, &device), None).into_data();
    let bytes: Vec<u8> = scores.iter::<f32>().flat_map(f32::to_le_bytes).collect();
    Ok(std::fs::write(out, bytes)?)
}
