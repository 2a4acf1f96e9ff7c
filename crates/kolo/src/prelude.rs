//! Names that most programs use, for `use kolo::prelude::*`.

pub use kolo_burn_train::{
    Flow, Mean, Metric, Recipe, Tally, Trained, Trainer, TrainingContext, accuracy, cross_entropy,
    image_tensors,
};
pub use kolo_data::{DataError, DataSet, Loader, Part};

pub use crate::{
    Choice, Config, Ddp, Failure, GradientTransform, Group, Loss, Optimizer, Rank, Sampler, Settings,
};
