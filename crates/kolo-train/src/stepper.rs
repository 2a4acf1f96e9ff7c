//! Single steps of a model of any type, for those who measure them.

use std::sync::Arc;

use burn::tensor::Device;
use kolo_burn::{Ddp, DropoutKey};
use kolo_comm::Group;
use kolo_data::Batch;
use kolo_ddp::{Replica, StepReport};

use crate::error::Error;
use crate::model::TrainingContext;
use crate::models::ImageModel;

/// A replica of a model whose type is not known.
pub trait Stepper {
    /// The ranks that train together.
    fn group(&self) -> &Arc<Group>;

    /// Takes a step, of which `batch` is this rank's only shard.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    fn step(&mut self, batch: Batch, learning_rate: f64) -> Result<StepReport, Error>;

    /// The flat side: values, the reducer. `look` cannot use the model.
    fn with_replica(&self, look: &mut dyn FnMut(&mut Replica));
}

pub(crate) struct DdpStepper<M> {
    pub(crate) ddp: Ddp<M>,
    pub(crate) device: Device,
}

impl<M: ImageModel> Stepper for DdpStepper<M> {
    fn group(&self) -> &Arc<Group> {
        self.ddp.group()
    }

    fn step(&mut self, batch: Batch, learning_rate: f64) -> Result<StepReport, Error> {
        let dropout = &DropoutKey { seed: 0, epoch: 0, step: 0, shard: self.ddp.rank().0 };
        let context =
            TrainingContext { dropout, cross_shard: None, device: &self.device, label_smoothing: 0.0 };
        let loss = self.ddp.model().loss(batch, &context);
        self.ddp.backward(loss)?;
        Ok(self.ddp.step(learning_rate)?)
    }

    fn with_replica(&self, look: &mut dyn FnMut(&mut Replica)) {
        self.ddp.with_replica(look);
    }
}
