//! Single steps of a model of any type, for measurements.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use kolo_burn::{Ddp, DropoutKey, Loss};
use kolo_burn_train::{Error, TrainingContext};
use kolo_comm::Group;
use kolo_data::Batch;
use kolo_ddp::{Replica, StepReport};

/// A replica of a model of unknown type.
pub trait Stepper {
    /// Ranks that train together.
    fn group(&self) -> &Arc<Group>;

    /// Takes a step, of which `batch` is this rank's only shard.
    ///
    /// # Errors
    ///
    /// A collective failed (the error names the rank).
    fn step(&mut self, batch: Batch, learning_rate: f64) -> Result<StepReport, Error>;

    /// Calls `look` with the replica, which has the flat values and the reducer; `look` cannot use the model.
    fn with_replica(&self, look: &mut dyn FnMut(&mut Replica));
}

pub(crate) struct DdpStepper<M> {
    pub(crate) ddp: Ddp<M>,
    pub(crate) device: Device,
    /// Loss of one shard's samples in training.
    pub(crate) loss: fn(&M, Batch, &TrainingContext<'_>) -> Loss,
}

impl<M: Module> Stepper for DdpStepper<M> {
    fn group(&self) -> &Arc<Group> {
        self.ddp.group()
    }

    fn step(&mut self, batch: Batch, learning_rate: f64) -> Result<StepReport, Error> {
        let dropout = &DropoutKey { seed: 0, epoch: 0, step: 0, shard: self.ddp.rank().0 };
        let (device, label_smoothing) = (&self.device, 0.0);
        let context = TrainingContext { dropout, cross_shard: None, device, label_smoothing, mixing: None };
        let loss = (self.loss)(self.ddp.model(), batch, &context);
        self.ddp.backward(loss)?;
        Ok(self.ddp.step(learning_rate)?)
    }

    fn with_replica(&self, look: &mut dyn FnMut(&mut Replica)) {
        self.ddp.with_replica(look);
    }
}
