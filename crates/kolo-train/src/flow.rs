//! Answers of callbacks.

use kolo_metrics::Record;
use kolo_recipe::Recipe;

use crate::error::Error;

/// Answer of a callback: what the run does next.
///
/// The answer of a callback that ends a run whose loss is low enough:
///
/// ```
/// use kolo_train::{Flow, StepRow};
///
/// /// For `Trainer::on_step`.
/// fn is_enough<M>(row: &StepRow, _model: &M) -> Flow {
///     if row.loss < 0.1 { Flow::Stop } else { Flow::Continue }
/// }
/// # let _ = is_enough::<()>;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// The run continues.
    #[default]
    Continue,
    /// The run writes a checkpoint now, and continues.
    Checkpoint,
    /// The run ends here, as after its last step: the model is evaluated, and a checkpoint and the summary
    /// are written.
    Stop,
}

/// Value that a callback returns: a [`Flow`], or nothing.
pub trait Answer {
    /// True if all workers have to agree on the answer.
    const DECIDES: bool;

    /// Returns the answer.
    fn flow(self) -> Flow;
}

impl Answer for () {
    const DECIDES: bool = false;

    fn flow(self) -> Flow {
        Flow::Continue
    }
}

impl Answer for Flow {
    const DECIDES: bool = true;

    fn flow(self) -> Flow {
        self
    }
}

/// Moment at which callbacks answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Step,
    Epoch,
}

/// Last answers of this worker's callbacks, by moment, each with the number of steps done then.
#[derive(Debug, Default)]
pub(crate) struct Answers([Option<(u64, Flow)>; 2]);

impl Answers {
    /// Answer at this moment after so many steps; `None` if no callback was asked here.
    pub(crate) fn at(&self, moment: Moment, steps: u64) -> Option<Flow> {
        self.0[moment as usize].filter(|(at, _)| *at == steps).map(|(_, flow)| flow)
    }

    pub(crate) fn keep(&mut self, record: &Record<'_>, steps: u64, flow: Flow) {
        match record {
            Record::Step { row, .. } => self.0[Moment::Step as usize] = Some((row.step + 1, flow)),
            Record::Epoch(_) => self.0[Moment::Epoch as usize] = Some((steps, flow)),
            _ => {}
        }
    }
}

/// Refuses callbacks that decide after each step if workers do not have one model then.
pub(crate) fn check(decides_after_steps: bool, recipe: &Recipe) -> Result<(), Error> {
    if !decides_after_steps || has_one_model(recipe) {
        return Ok(());
    }
    let problem = "the workers have one model only after some of the steps, so that no `on_step` can decide on the \
                   run; return a `Flow` from `on_epoch`";
    Err(Error::setting("--sync", &recipe.sync.mode, problem))
}

/// True if all workers have the same model and losses after each step.
pub(crate) fn has_one_model(recipe: &Recipe) -> bool {
    recipe.sync.mode.traits().is_every_step()
}
