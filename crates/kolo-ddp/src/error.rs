//! What can go wrong in a data-parallel step.

use std::path::PathBuf;

use kolo_checkpoint::Error as CheckpointError;
use kolo_comm::Rank;

use crate::origin::Origin;
use crate::shard_loss::ShardLoss;
use kolo_optim::GroupError;
use kolo_optim::table::ChoiceError;

/// What went wrong in a binding. Any error becomes one by `?`; [`Ddp`](crate::Ddp) returns it as
/// [`Error::Binding`].
pub type BindingError = Box<dyn std::error::Error + Send + Sync>;

/// An error of data-parallel training, named after the culprit.
#[derive(Debug, thiserror::Error)]
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
        /// Its name.
        setting: String,
        /// What it is on each rank, in words.
        values: Vec<String>,
    },
    /// Workers that wanted to take part in a job that had begun do not fit it; it goes on without them.
    #[error("{} cannot take part and must leave: {problem}", ranks_of(ranks))]
    NewcomersRefused {
        /// Who they are in the group that has not come about.
        ranks: Vec<Rank>,
        /// What is wrong with the first of them.
        problem: String,
    },
    /// The ranks trained the same model and do not hold the same weights any more.
    #[error(
        "the ranks differ after step {step}: parameter `{parameter}` on {rank} is not what {reference} holds ({agreed} of \
         {world} ranks agree with that one); check that rank's memory, and that no worker changes the model alone; start \
         again from a checkpoint of before"
    )]
    Drift {
        /// Number of the step, from 0.
        step: u64,
        /// The rank that differs.
        rank: Rank,
        /// The first tensor in which it does.
        parameter: String,
        /// A rank that is taken to be right.
        reference: Rank,
        /// How many ranks hold what that one holds.
        agreed: usize,
        /// How many ranks there are.
        world: usize,
    },
    /// A reduction has failed before and was reported then; its gradients are lost.
    #[error("training cannot go on: a reduction has failed before; start again from the last checkpoint")]
    Lost,
    /// A name that no table has, or a setting that its entry does not have or that may not be so.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A group of parameters that selects none, or whose settings cannot be.
    #[error(transparent)]
    Groups(#[from] GroupError),
    /// A setting that cannot be.
    #[error("{0}")]
    Setting(String),
    /// The model, or the tensor library's binding, cannot do what it was asked for.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// Cross-shard passes were given another number of inputs than this rank has shards.
    #[error("{given} inputs for the {due} shards of this rank; give one for each")]
    InputsMismatch {
        /// Inputs that were given.
        given: usize,
        /// Shards of this rank.
        due: usize,
    },
    /// A shard took part in cross-shard passes with a loss over nothing.
    #[error("the loss of shard {shard} is over no samples; give `None` for its input")]
    EmptyShard {
        /// Number of the shard in the step.
        shard: usize,
    },
    /// A shard's passes, or a worker that a server serves, could not have a thread of their own.
    #[error("cannot start a thread for a shard's passes, or to serve a worker: {cause}")]
    Thread {
        /// What the operating system says.
        cause: std::io::Error,
    },
    /// The step has no samples, so there is no gradient.
    #[error("step {step} has no samples on any rank; is the data set empty?")]
    NoSamples {
        /// Number of the step, from 0.
        step: u64,
    },
    /// The loss of a step is not a number any more, or infinite. No parameter has been changed.
    #[error(
        "the loss of step {step} is {}: training has diverged, or samples hold what is no number; lower the learning rate, clip \
         the gradient, or look at those samples; no parameter has been changed",
        by_shard(*loss, shards)
    )]
    LossNotFinite {
        /// Number of the step, from 0.
        step: u64,
        /// Sum of all shards' losses.
        loss: f64,
        /// The shards whose own loss is not finite; none where only the sum is too large.
        shards: Vec<ShardLoss>,
    },
    /// The gradient of a step is not finite, though the loss is. No parameter has been changed.
    #[error(
        "the gradient of `{parameter}` in step {step} is {value} {origin}, though the loss is finite: training has diverged, an \
         operation has no gradient where it was used (a root or a norm at 0), or samples hold what is no number; lower the learning \
         rate, clip the gradient, or look at that operation and at those samples; no parameter has been changed"
    )]
    GradientNotFinite {
        /// Number of the step, from 0.
        step: u64,
        /// The first parameter, in the model's order, whose gradient is not finite.
        parameter: String,
        /// The first of its elements that is not finite.
        value: f64,
        /// Where that comes from.
        origin: Origin,
    },
    /// A running statistic, such as the variance of a batch normalisation, has been moved to what is not
    /// finite. Neither it nor a parameter has been changed.
    #[error(
        "the statistic `{statistic}` would be changed by {value} in step {step} {origin}, though loss and gradient are finite: what a \
         layer computes has become too large, or samples hold what is no number; lower the learning rate, clip the gradient, or look \
         at those samples; nothing has been changed"
    )]
    StatisticNotFinite {
        /// Number of the step, from 0.
        step: u64,
        /// The first statistic, in the model's order, whose change is not finite.
        statistic: String,
        /// The first element of the change that is not finite.
        value: f64,
        /// Where that comes from.
        origin: Origin,
    },
    /// The update of a step has made values that are not finite, from a gradient that is. They are of no use
    /// any more, and nothing of them is saved: every later call says the same.
    #[error(
        "`{tensor}` is not finite after step {step}, though the gradient is: the update has overflowed; lower the learning rate or \
         clip the gradient, and go on from the last checkpoint, which is of before"
    )]
    ValuesNotFinite {
        /// Number of the step, from 0.
        step: u64,
        /// The first parameter, in the model's order, that is not finite, or the first state of the optimizer
        /// as `<state>/<parameter>`.
        tensor: String,
    },
    /// A step has given no parameter a gradient, in any of its shards.
    #[error(
        "no parameter had a gradient in step {step}: its loss does not come from the parameters that are trained; compute it by \
         `ddp.model()` in each step anew, not by a clone of the model"
    )]
    NoGradient {
        /// Number of the step, from 0.
        step: u64,
    },
    /// The reduction makes no sense with the optimizer.
    #[error("{problem}")]
    ReductionRefused {
        /// Why, and what to do.
        problem: String,
    },
    /// What the other ranks' shards keep from step to step is not here.
    #[error(
        "a checkpoint of a job with the reduction `{reduction}` holds residuals of all ranks; call `Replica::gather_residuals` on all \
         of them after the step that it is of"
    )]
    ResidualsElsewhere {
        /// The reduction's name.
        reduction: String,
    },
    /// A checkpoint was to be taken or loaded in the middle of a round of islands, or of workers with servers
    /// that hold the weights.
    #[error(
        "a checkpoint cannot be taken or loaded after {step} steps, in the middle of a round that began after {began}; call \
         `Replica::end_round` before the last step"
    )]
    RoundNotOver {
        /// Steps done.
        step: u64,
        /// Steps done when the round began.
        began: u64,
    },
    /// A checkpoint was to be taken or read while the gradient of a step is on its way.
    #[error(
        "a checkpoint can be neither taken nor read while the gradient of step {step} is on its way; call `Replica::end_round` before \
         that step"
    )]
    GradientOnItsWay {
        /// Number of the step, from 0.
        step: u64,
    },
    /// The state of other ranks' islands is not here.
    #[error(
        "a checkpoint of a job with islands holds the optimizers of all of them; call `Replica::gather_residuals` on all ranks after \
         the step that it is of"
    )]
    IslandsElsewhere,
    /// The optimizers' state of servers that hold the weights is not here.
    #[error(
        "a checkpoint of a job whose servers hold the weights holds the state of their optimizers; call `Replica::gather_residuals` on \
         all ranks after the step that it is of, and take it on rank 0"
    )]
    StateOnServers,
    /// A call of the step in a phase to which it does not belong.
    #[error("`{call}` cannot be called {phase}; {remedy}")]
    OutOfOrder {
        /// What was called.
        call: &'static str,
        /// When it was called.
        phase: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A rank began another pass when its shards of the step were done.
    #[error("this rank holds {due} shards a step; call `step` before the next backward pass")]
    NoShardLeft {
        /// Shards of this rank.
        due: usize,
    },
    /// A rank did not do its shards.
    #[error("this rank holds {due} shards a step but finished {done} before `step` was called")]
    ShardsMissing {
        /// Shards of this rank.
        due: usize,
        /// Backward passes done.
        done: usize,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The ranks were to continue from different checkpoints.
    #[error(
        "the ranks have read different checkpoints: {}; give all of them the same, or let `Ddp::resume` find the newest that all have",
        by_value(values)
    )]
    CheckpointsDiffer {
        /// What each rank has read, in words.
        values: Vec<String>,
    },
    /// A rank cannot read its checkpoint, so no rank continues from it.
    #[error("{rank} cannot continue from its checkpoint: {problem}")]
    CheckpointUnreadable {
        /// The first rank that cannot.
        rank: Rank,
        /// What is wrong: names the file.
        problem: String,
    },
    /// There are checkpoints, but none that is good on all ranks.
    #[error(
        "{}: no checkpoint is good on all ranks; start anew, or put one there:{}",
        folder.display(),
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    NoCommonCheckpoint {
        /// The folder of the checkpoints.
        folder: PathBuf,
        /// What is wrong with each, and on which ranks.
        problems: Vec<String>,
    },
    /// A file of a trace cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
}

/// The loss of a step in words: that of the shards to blame, else the sum.
fn by_shard(loss: f64, shards: &[ShardLoss]) -> String {
    match shards {
        [] => format!("{loss}, the sum of finite losses of its shards"),
        _ => enumerate(shards.iter().map(ShardLoss::to_string)),
    }
}

/// The values of all ranks in words: `1 on ranks 0 and 2 and 3 on rank 1`.
fn by_value(values: &[String]) -> String {
    let mut different: Vec<&String> = Vec::new();
    for value in values {
        if !different.contains(&value) {
            different.push(value);
        }
    }
    let ranks = |value: &String| -> Vec<Rank> {
        (0..values.len()).filter(|rank| values[*rank] == *value).map(Rank).collect()
    };
    enumerate(different.into_iter().map(|value| format!("{value} on {}", ranks_of(&ranks(value)))))
}

/// `rank 3`, or `ranks 1, 2 and 3`.
pub(crate) fn ranks_of(ranks: &[Rank]) -> String {
    match ranks {
        [rank] => rank.to_string(),
        _ => format!("ranks {}", enumerate(ranks.iter().map(|rank| rank.0.to_string()))),
    }
}

/// `a, b and c`.
fn enumerate(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    match (words.pop(), words.is_empty()) {
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

impl Error {
    /// Whether training cannot go on because of its numbers: its loss, its gradient or its values are not
    /// finite. On all ranks alike.
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

    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl std::fmt::Display) -> Self {
        Error::File { path: path.into(), problem: problem.to_string() }
    }
}
