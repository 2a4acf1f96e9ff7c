//! Errors of data-parallel training.

use std::path::PathBuf;

use kolo_checkpoint::Error as CheckpointError;
use kolo_comm::Rank;
use kolo_comm::schedule::words::{self, counted};

use crate::origin::Origin;
use crate::shard_loss::ShardLoss;
use kolo_optim::table::ChoiceError;
use kolo_optim::{GroupError, StoreFailure};

/// An error of a binding. Any error becomes one by `?`; `Ddp` returns it as [`Error::Binding`].
pub type BindingError = Box<dyn std::error::Error + Send + Sync>;

/// An error of data-parallel training, named after the culprit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A collective failed; names the rank at fault.
    #[error(transparent)]
    Comm(#[from] kolo_comm::Error),
    /// The ranks hold different models.
    #[error("the model differs between ranks: {0}; all ranks must build it from the same configuration")]
    ModelsDiffer(String),
    /// The ranks were given different settings.
    #[error(
        "{setting} is {}; all ranks of a job need the same: start them with the same settings",
        by_value(values)
    )]
    SettingsDiffer {
        setting: String,
        /// Each rank's value, as text.
        values: Vec<String>,
    },
    /// Workers that wanted to join a running job do not fit it; it continues without them.
    #[error("{} cannot take part and must leave: {problem}", ranks_of(ranks))]
    NewcomersRefused {
        ranks: Vec<Rank>,
        /// Fault of the first of them.
        problem: String,
    },
    /// The ranks trained the same model, and their weights have diverged.
    #[error(
        "the ranks differ after step {step}: parameter `{parameter}` on {rank} is not what {reference} holds ({agreed} of \
         {world} ranks agree with that one); check that rank's memory, and that no worker changes the model alone; continue \
         from an earlier checkpoint"
    )]
    Drift {
        /// Number of the step, from 0.
        step: u64,
        rank: Rank,
        parameter: String,
        /// A rank that is assumed to be right.
        reference: Rank,
        agreed: usize,
        world: usize,
    },
    /// A reduction has failed before and was reported then; its gradients are lost.
    #[error(
        "training cannot continue: an earlier reduction failed; continue from a checkpoint, if there is one"
    )]
    Lost,
    /// A name that is in no table, or a setting that its entry does not have or whose value is invalid.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A group of parameters that selects none, or whose settings are invalid.
    #[error(transparent)]
    Groups(#[from] GroupError),
    /// Invalid settings of a sampler.
    #[error(transparent)]
    Sampler(#[from] kolo_sampler::SamplerError),
    /// An invalid setting.
    #[error("{0}")]
    Setting(String),
    /// The model, or the tensor library's binding, cannot do what was requested.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// Cross-shard passes were given a number of inputs that is not this rank's number of shards.
    #[error("this rank has {} but {}; give one for each", counted(due, "shard"), counted(given, "input"))]
    InputsMismatch { given: usize, due: usize },
    /// A shard took part in cross-shard passes with a loss over no samples.
    #[error("the loss of shard {shard} is over no samples; give `None` for its input")]
    EmptyShard { shard: usize },
    /// No thread could be started for a shard's passes, or for a worker that a server serves.
    #[error("cannot start a thread for a shard's passes, or to serve a worker: {cause}")]
    Thread { cause: std::io::Error },
    /// The step has no samples, so there is no gradient.
    #[error("step {step} has no samples on any rank; is the data set empty?")]
    NoSamples {
        /// Number of the step, from 0.
        step: u64,
    },
    /// A trained parameter is not finite from the start.
    #[error("parameter `{parameter}` is not finite before the first step; begin with other weights")]
    FirstNotFinite { parameter: String },
    /// The loss of a step is NaN or infinite. No parameter has been changed.
    #[error(
        "the loss of step {step} is {}, and Kolo has changed no parameter: training has diverged, or samples hold values that are not \
         numbers; look at those samples, lower the learning rate, or clip the gradient",
        by_shard(*loss, shards)
    )]
    LossNotFinite {
        /// Number of the step, from 0.
        step: u64,
        loss: f64,
        /// The shards whose own loss is not finite; empty if only the sum is too large.
        shards: Vec<ShardLoss>,
    },
    /// The gradient of a step is not finite, though the loss is. No parameter has been changed.
    #[error(
        "the gradient of `{parameter}` in step {step} is {value} {origin}, though the loss is finite, and Kolo has changed no parameter: training has \
         diverged, an operation has no gradient where it was used (a root or a norm at 0), or samples hold values that are not numbers; look \
         at that operation and at those samples, lower the learning rate, or clip the gradient"
    )]
    GradientNotFinite {
        /// Number of the step, from 0.
        step: u64,
        parameter: String,
        value: f64,
        origin: Origin,
    },
    /// The change of a running statistic, such as the variance of a batch normalization, is not finite. No
    /// statistic and no parameter has been changed.
    #[error(
        "step {step} would change the statistic `{statistic}` by {value} {origin}, though loss and gradient are finite, and Kolo has \
         changed nothing: what a layer computes has become too large, or samples hold values that are not numbers; look at those samples, \
         lower the learning rate, or clip the gradient"
    )]
    StatisticNotFinite {
        /// Number of the step, from 0.
        step: u64,
        statistic: String,
        value: f64,
        origin: Origin,
    },
    /// The update of a step has made values that are not finite, from a finite gradient. The values are
    /// useless, and none is saved: every later call returns the same error.
    #[error(
        "`{tensor}` is not finite after step {step}, though the gradient is: the update has overflowed; continue from an older \
         checkpoint, if there is one, and lower the learning rate or clip the gradient"
    )]
    ValuesNotFinite {
        /// Number of the step, from 0.
        step: u64,
        /// The first parameter, in the model's order, that is not finite, or the first state of the
        /// optimizer as `<state>/<parameter>`.
        tensor: String,
    },
    /// A step has given no parameter a gradient, in any of its shards.
    #[error(
        "no parameter had a gradient in step {step}: its loss does not depend on the trained parameters; compute it by \
         `ddp.model()` in each step, not by a clone of the model"
    )]
    NoGradient {
        /// Number of the step, from 0.
        step: u64,
    },
    /// The reduction does not work with the optimizer.
    #[error("{problem}")]
    ReductionRefused { problem: String },
    /// The other ranks' residuals, which their shards keep from step to step, are not on this rank.
    #[error(
        "a checkpoint of a job with the reduction `{reduction}` holds residuals of all ranks; call `Replica::gather_residuals` on all \
         of them after its step"
    )]
    ResidualsElsewhere { reduction: String },
    /// A checkpoint was to be taken or loaded in the middle of a round of islands, or of workers with
    /// servers that hold the weights.
    #[error(
        "a checkpoint cannot be taken or loaded after {}, in the middle of a round that began after {began}; call \
         `Replica::end_round` before the last step",
        counted(step, "step")
    )]
    RoundNotOver {
        /// Steps done.
        step: u64,
        /// Steps done when the round began.
        began: u64,
    },
    /// A checkpoint was to be taken or read while the gradient of a step is in flight.
    #[error(
        "a checkpoint can be neither taken nor read while the gradient of step {step} is on its way; call `Replica::end_round` before \
         that step"
    )]
    GradientOnItsWay {
        /// Number of the step, from 0.
        step: u64,
    },
    /// The state of other ranks' islands is not on this rank.
    #[error(
        "a checkpoint of a job with islands holds the optimizers of all of them; call `Replica::gather_residuals` on all ranks after \
         its step"
    )]
    IslandsElsewhere,
    /// The optimizers' state, which the servers hold with the weights, is not on this rank.
    #[error(
        "a checkpoint of a job whose servers hold the weights holds the state of their optimizers; call `Replica::gather_residuals` on \
         all ranks after its step, and take it on rank 0"
    )]
    StateOnServers,
    /// Other ranks hold parts of the optimizer's state.
    #[error(
        "a checkpoint of a job whose optimizer's state is divided among the workers holds all of it; call \
         `checkpoint::save_together` on all ranks after its step"
    )]
    StateDivided,
    /// An optimizer's state that is in a file is lost, or there is no room for the state in a file, or in
    /// the memory of a host.
    #[error("{rank}: {failure}")]
    Offload { rank: Rank, failure: StoreFailure },
    /// A worker may not have as many addresses as its state needs.
    #[error(
        "values, gradients and optimizer state of a model of {values} values take {needed} in a worker, which may have {limit} of \
         addresses (ulimit -v) and uses {used}; {remedy}"
    )]
    FewAddresses { values: u64, needed: String, limit: String, used: String, remedy: String },
    /// All owners of a part of the divided state have died, or left, before others had it.
    #[error(
        "only {} held {array} of `{parameter}`, and {} gone, so the job cannot go on from memory; continue from a checkpoint, if \
         there is one",
        words::ranks(ranks),
        if ranks.len() == 1 { "it is" } else { "they are" }
    )]
    OwnersLost {
        /// Owners of the part, by their ranks before they were gone.
        ranks: Vec<Rank>,
        /// Array of the optimizer's state, or `the values`.
        array: String,
        parameter: String,
    },
    /// A call in a phase of the step to which it does not belong.
    #[error("`{call}` cannot be called {phase}; {remedy}")]
    OutOfOrder { call: &'static str, phase: &'static str, remedy: &'static str },
    /// A rank began another pass when its shards of the step were done.
    #[error("this rank holds {} a step; call `step` before the next backward pass", counted(due, "shard"))]
    NoShardLeft { due: usize },
    /// A rank did not do all of its shards.
    #[error("this rank holds {} a step but finished {done} before `step` was called", counted(due, "shard"))]
    ShardsMissing { due: usize, done: usize },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The ranks were to continue from different checkpoints.
    #[error(
        "the ranks have read different checkpoints: {}; give all of them the same, or let `Ddp::resume` find the newest that all have",
        by_value(values)
    )]
    CheckpointsDiffer {
        /// The checkpoint that each rank has read, as text.
        values: Vec<String>,
    },
    /// A rank cannot read its checkpoint, so no rank continues from it.
    #[error("{rank} cannot continue from its checkpoint: {problem}")]
    CheckpointUnreadable { rank: Rank, problem: String },
    /// There are checkpoints, but none that is good on all ranks.
    #[error(
        "{}: no checkpoint is good on all ranks; start anew, or put one there:{}",
        folder.display(),
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    NoCommonCheckpoint { folder: PathBuf, problems: Vec<String> },
    /// A file of a trace cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
}

/// Formats the loss of a step: the losses that are not finite by shard, else the sum.
fn by_shard(loss: f64, shards: &[ShardLoss]) -> String {
    match shards {
        [] => format!("{loss}, the sum of finite losses of its shards"),
        _ => enumerate(shards.iter().map(ShardLoss::to_string)),
    }
}

/// Formats the values of all ranks: `1 on ranks 0 and 2 and 3 on rank 1`.
fn by_value(values: &[String]) -> String {
    let of = |(value, ranks): (&String, Vec<Rank>)| format!("{value} on {}", ranks_of(&ranks));
    enumerate(alike(values).into_iter().map(of))
}

/// Returns the different values of all ranks, each with its ranks, in the order of their first ranks.
pub fn alike<T: PartialEq>(values: &[T]) -> Vec<(&T, Vec<Rank>)> {
    let mut different: Vec<(&T, Vec<Rank>)> = Vec::new();
    for (rank, value) in values.iter().enumerate() {
        match different.iter_mut().find(|(other, _)| *other == value) {
            Some((_, ranks)) => ranks.push(Rank(rank)),
            None => different.push((value, vec![Rank(rank)])),
        }
    }
    different
}

/// Formats ranks: `rank 3`, or `ranks 1, 2 and 3`.
pub fn ranks_of(ranks: &[Rank]) -> String {
    match ranks {
        [rank] => rank.to_string(),
        _ => format!("ranks {}", enumerate(ranks.iter().map(|rank| rank.0.to_string()))),
    }
}

/// Formats a list: `a, b and c`.
fn enumerate(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    match (items.pop(), items.is_empty()) {
        (Some(last), false) => format!("{} and {last}", items.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

impl Error {
    /// Returns true if training cannot continue because its loss, its gradient or its values are not finite.
    /// The same on all ranks.
    pub fn is_divergence(&self) -> bool {
        matches!(
            self,
            Error::LossNotFinite { .. }
                | Error::GradientNotFinite { .. }
                | Error::StatisticNotFinite { .. }
                | Error::ValuesNotFinite { .. }
                | Error::Checkpoint(CheckpointError::SnapshotNotFinite { .. })
        )
    }

    /// Returns true if the user's input is at fault: a setting, the choice of a name, or the weights to begin
    /// with.
    pub fn is_input(&self) -> bool {
        match self {
            Error::Comm(error) => error.is_setting(),
            Error::Choice(_) | Error::Groups(_) | Error::Sampler(_) | Error::Setting(_) => true,
            Error::FewAddresses { .. } | Error::FirstNotFinite { .. } => true,
            _ => false,
        }
    }

    /// Returns an error about a file.
    pub fn file(path: impl Into<PathBuf>, problem: impl std::fmt::Display) -> Self {
        Error::File { path: path.into(), problem: problem.to_string() }
    }
}
