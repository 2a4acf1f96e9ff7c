//! One's own data: images from anywhere become a data set, and its batches are prepared ahead of time.
//!
//! `cargo run -p kolo-data --example own_data`

use kolo_data::{Augment, AugmentKey, DataSet, ImageSet, Images, Part, Prefetch, Request};

/// Squares and stripes, 8x8.
fn drawn(count: usize) -> Images {
    let pixel = |class: usize, y: usize, x: usize| match class {
        0 => (2..6).contains(&y) && (2..6).contains(&x),
        _ => y.is_multiple_of(2),
    };
    let image = |class| (0..64).map(move |at| if pixel(class, at / 8, at % 8) { 255 } else { 0 });
    let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
    let pixels = labels.iter().flat_map(|label| image(usize::from(*label))).collect();
    Images { channels: 1, height: 8, width: 8, pixels, labels }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = ImageSet::new(drawn(100), drawn(20), 2, Augment { crop_padding: 1, flip: true });
    println!("{:?}, {} samples", data.shape(), data.samples(Part::Train));

    let requests = [vec![0, 1, 2], vec![], vec![97]].map(|indices| Request { indices, epoch: 0 });
    let prepare = move |Request { indices, epoch }| {
        data.batch(Part::Train, &indices, Some(AugmentKey { seed: 7, epoch }))
    };
    for batch in Prefetch::new(requests, 2, prepare)? {
        let batch = batch?;
        println!("a batch of {:?}, labels {:?}", batch.shape, batch.labels);
    }
    Ok(())
}
