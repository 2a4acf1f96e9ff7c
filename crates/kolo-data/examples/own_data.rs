//! Your own data: images from any source become a data set, whose batches are prepared ahead of time.
//!
//! `cargo run -p kolo-data --example own_data`

use std::sync::Arc;

use kolo_data::{Augment, DataSet, ImageDataSet, ImageSet, Images, Loader, Part};
use kolo_sampler::Sampler;

/// Draws squares and stripes of 8x8 pixels.
fn drawn(count: usize) -> Images {
    let pixel = |class: usize, y: usize, x: usize| match class {
        0 => (2..6).contains(&y) && (2..6).contains(&x),
        _ => y.is_multiple_of(2),
    };
    let image = |class| (0..64).map(move |at| if pixel(class, at / 8, at % 8) { 255 } else { 0 });
    let labels: Vec<u32> = (0..count).map(|i| (i % 2) as u32).collect();
    let pixels = labels.iter().flat_map(|label| image(*label as usize)).collect();
    Images { channels: 1, height: 8, width: 8, pixels, labels }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = ImageSet::new(drawn(100), drawn(20), 2, Augment { crop_padding: 1, flip: true })?;
    println!("{:?}, {} samples", data.shape(), data.samples(Part::Train));

    // Two shards of 16 images a step; this worker has the second one.
    let sampler = Sampler::new(data.samples(Part::Train), 16, 2, 7)?;
    let mut loader = Loader::new(Arc::new(data), sampler.clone()).augmented(7);
    for step in 0..sampler.steps() {
        for shard in loader.step(0, step, 1..2) {
            let Some(batch) = shard?.batch else { continue };
            println!("step {step}: a batch of {:?}, labels {:?}", batch.shape, batch.labels);
        }
    }
    Ok(())
}
