//! One step of data-parallel training: the way of a gradient to the other ranks and back.
//!
//! `step/mod.rs` describes that way; [`Step`] is its state machine. [`LastStep`] is the result of a step,
//! [`NoiseScale`] an average over steps; a [`LossScaler`] and a [`Tuner`] choose the settings of the next
//! ones, and a [`MembershipObserver`] carries requests to leave. [`trace`] is the file of a run's results
//! that `kolo verify` compares. The weights and the optimizer belong to the caller.

mod division;
mod exchange;
mod gradient_memory;
mod last_step;
mod loss_scaling;
mod losses;
mod membership;
mod noise_probe;
mod noise_scale;
mod step;
pub mod trace;
mod tune;
mod wait_time;

pub use division::Division;
pub use last_step::LastStep;
pub use loss_scaling::{LossScale, LossScaler, LossScaling};
pub use membership::{Agreed, MembershipObserver};
pub use noise_probe::NoiseProbe;
pub use noise_scale::{BatchMeaning, NoiseScale, Norms};
pub use step::{
    BucketTiming, DIVIDED_BUCKET_MIB, FLAGS, IN_FLIGHT, ObserverMessage, Received, Spent, Step, StepNumber,
    SumSeen, Totals,
};
pub use tune::{Effort, Space, Trial, TunedSetting, Tuner, Tuning, Verdict};
pub use wait_time::timed;
