//! Exact evaluation, spread over the workers: every test sample counts once, on any number of ranks.

use burn::tensor::Device;
use kolo_burn::Ddp;
use kolo_comm::Op;
use kolo_data::{DataSet, Part};

use crate::error::Error;
use crate::model::Model;

/// Samples a forward pass. Fixed, so that nothing depends on the number of workers.
const BATCH: usize = 250;

/// The share of test samples that the model classifies rightly. A collective.
pub(crate) fn accuracy<M: Model>(ddp: &Ddp<M>, data: &dyn DataSet, device: &Device) -> Result<f64, Error> {
    let (rank, world) = (ddp.rank().0, ddp.group().world_size());
    let model = ddp.model().valid();
    let samples = data.samples(Part::Test);
    let indices: Vec<usize> = (0..samples).collect();
    let own = indices.chunks(BATCH).skip(rank).step_by(world);
    let correct = own.map(|batch| model.correct(data.batch(Part::Test, batch, None), device));
    let mut total = [correct.sum::<usize>() as i64];
    ddp.group().all_reduce(&mut total, Op::Sum)?;
    Ok(total[0] as f64 / samples as f64)
}
