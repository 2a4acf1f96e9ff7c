//! Exact evaluation, spread over the workers: every test image counts once, on any number of ranks.

use crate::models::ResNet;
use burn::tensor::Device;
use kolo_burn::Ddp;
use kolo_comm::Op;
use kolo_data::{Dataset, Normalise};

use crate::error::Error;
use crate::tensors::image_tensors;

/// Images a forward pass. Fixed, so that nothing depends on the number of workers.
const BATCH: usize = 250;

/// The share of test images that the model classifies rightly.
pub(crate) fn accuracy(ddp: &Ddp<ResNet>, dataset: &Dataset, device: &Device) -> Result<f64, Error> {
    let (rank, world) = (ddp.rank().0, ddp.group().world_size());
    let model = ddp.evaluated();
    let normalise = Normalise::of(dataset);
    let indices: Vec<usize> = (0..dataset.test.len()).collect();
    let mut right = 0i64;
    for batch in indices.chunks(BATCH).skip(rank).step_by(world) {
        let (images, labels) = image_tensors(dataset.test.batch(batch, &normalise, None), device);
        let guesses = model.forward(images).argmax(1).flatten::<1>(0, 1);
        right += guesses.equal(labels).int().sum().into_scalar::<i64>();
    }
    let mut total = [right];
    ddp.group().all_reduce(&mut total, Op::Sum)?;
    Ok(total[0] as f64 / dataset.test.len() as f64)
}
