//! Images a second of a folder of images, decoded, cropped and flipped as in training.
//!
//! `cargo run --release -p kolo-data --example loading_speed -- FOLDER SIZE BATCH THREADS` loads one epoch and
//! prints `IMAGES SECONDS`; `bench/peers/loading.py` compares it with torchvision.

use std::time::Instant;

use kolo_data::{Loader, OpenOptions, Part, open_with};
use kolo_sampler::Sampler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, size, batch, threads] = &args[..] else {
        return Err("give FOLDER SIZE BATCH THREADS".into());
    };
    let (size, batch, threads) = (size.parse()?, batch.parse()?, threads.parse()?);
    let options = OpenOptions { size: Some(size), threads, ..OpenOptions::default() };
    let data = open_with(&format!("folder:{folder}"), &options)?;
    let sampler = Sampler::new(data.samples(Part::Train), batch, 1, 0)?;
    let mut loader = Loader::new(data, sampler.clone()).augmented(0).on_threads(threads);
    let (begin, mut images) = (Instant::now(), 0);
    for step in 0..sampler.steps() {
        for shard in loader.step(0, step, 0..1) {
            images += shard?.batch.map_or(0, |batch| batch.len());
        }
    }
    println!("{images} {:.6}", begin.elapsed().as_secs_f64());
    Ok(())
}
