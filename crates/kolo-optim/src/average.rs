//! A moving average of the weights beside any optimizer.

use std::fmt;

use crate::groups::{GroupError, GroupSettings};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::settings::Settings;
use crate::state::visit_state;
use crate::store::StatelessRule;

/// Name of the state that an [`Averaged`] optimizer adds: for each element of flat memory, its average minus
/// its value.
pub const AVERAGE_OFFSET: &str = "ema_offset";

/// An optimizer with an exponential moving average of the weights (EMA): after each step
/// `average = d · average + (1 − d) · weight`, beginning with the first weights (Polyak and Juditsky 1992,
/// with the decay d of Tarvainen and Valpola 2017, [arXiv:1703.01780](https://arxiv.org/abs/1703.01780)).
///
/// The state holds the average's distance from the weight. So it begins with 0, and what is not stepped, as a
/// frozen tensor, a running statistic or a tensor that no shard of a step uses, keeps its distance.
pub struct Averaged<O> {
    optimizer: O,
    decay: f64,
    warms_up: bool,
    /// d of the present step.
    now: f32,
    offset: Vec<f32>,
    /// Weights before an update.
    before: Vec<f32>,
}

impl<O: Optimizer> fmt::Debug for Averaged<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Averaged")
            .field("optimizer", &self.optimizer.name())
            .field("decay", &self.decay)
            .field("warms_up", &self.warms_up)
            .finish_non_exhaustive()
    }
}

impl<O: Optimizer> Averaged<O> {
    /// Adds an average with this decay to an optimizer. If it `warms_up`, the decay of step t, from 1, is at
    /// most (1 + t) / (10 + t).
    pub fn new(optimizer: O, decay: f64, warms_up: bool) -> Self {
        Averaged { optimizer, decay, warms_up, now: 0.0, offset: Vec::new(), before: Vec::new() }
    }
}

impl<O: Optimizer> Optimizer for Averaged<O> {
    fn name(&self) -> &str {
        self.optimizer.name()
    }

    fn settings(&self) -> Settings {
        self.optimizer.settings().with("ema", self.decay).with("ema_warmup", self.warms_up)
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        self.optimizer.usual_rates()
    }

    fn scope(&self) -> Scope {
        self.optimizer.scope()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.optimizer.set_groups(groups)
    }

    fn init(&mut self, layout: &Layout) {
        self.optimizer.init(layout);
        self.offset = vec![0.0; layout.len()];
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.optimizer.begin(step, learning_rate);
        let most = if self.warms_up { (1.0 + step as f64) / (10.0 + step as f64) } else { 1.0 };
        self.now = self.decay.min(most) as f32;
    }

    fn update(&mut self, mut update: Update<'_>) {
        self.before.clear();
        self.before.extend_from_slice(update.parameters);
        let range = update.range.clone();
        self.optimizer.update(update.reborrow());
        follow(&mut self.offset[range], &self.before, update.parameters, self.now);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        let mut state = self.optimizer.state();
        state.push((AVERAGE_OFFSET, &mut self.offset));
        state
    }

    fn rule(&mut self) -> Option<&mut dyn StatelessRule> {
        match self.optimizer.rule() {
            Some(_) => Some(self),
            None => None,
        }
    }
}

impl<O: Optimizer> Averaged<O> {
    fn inner(&mut self) -> &mut dyn StatelessRule {
        self.optimizer.rule().unwrap_or_else(|| unreachable!("`rule` returns an average only with a rule"))
    }
}

impl<O: Optimizer> StatelessRule for Averaged<O> {
    fn arrays(&mut self) -> Vec<&'static str> {
        self.inner().arrays().into_iter().chain([AVERAGE_OFFSET]).collect()
    }

    fn init_stateless(&mut self, layout: &Layout) {
        self.inner().init_stateless(layout);
        self.offset = Vec::new();
    }

    fn update_with(&mut self, mut update: Update<'_>, state: &mut [&mut [f32]]) {
        self.before.clear();
        self.before.extend_from_slice(update.parameters);
        let Some((offset, of_rule)) = state.split_last_mut() else { return };
        self.inner().update_with(update.reborrow(), of_rule);
        follow(offset, &self.before, update.parameters, self.now);
    }
}

/// Moves averages after an update: d · average + (1 − d) · weight, minus the weight.
fn follow(offset: &mut [f32], before: &[f32], after: &[f32], d: f32) {
    for ((offset, before), after) in offset.iter_mut().zip(before).zip(after) {
        *offset = d * (*offset + (before - after));
    }
}

/// Returns the averages of the weights in flat memory; `None` if the optimizer keeps none.
pub fn averages(optimizer: &mut dyn Optimizer, weights: &[f32]) -> Option<Vec<f32>> {
    let mut averages: Option<Vec<f32>> = None;
    visit_state(optimizer, &mut |name, start, offset| {
        if name == AVERAGE_OFFSET {
            let all = averages.get_or_insert_with(|| weights.to_vec());
            all[start..].iter_mut().zip(offset.iter()).for_each(|(weight, offset)| *weight += *offset);
        }
    });
    averages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, ParamSpec, named};

    /// The averages are those of the formula, in plain lines and double precision.
    #[test]
    fn the_average_follows_its_formula() {
        for (warms_up, decay) in [(false, 0.9), (true, 0.9), (true, 0.99)] {
            let sgd = named("sgd", &Settings::default().with("momentum", 0.5)).unwrap();
            let mut averaged = Averaged::new(sgd, decay, warms_up);
            let spec = |name| ParamSpec::new(name, vec![3], Kind::Parameter { decay: false });
            averaged.init(&Layout::new(vec![spec("stepped"), spec("unused")]));
            let mut weights = [0.5f32, -1.0, 2.0, 7.0, 8.0, 9.0];
            let mut expected = weights.map(f64::from);
            for step in 1..=40 {
                averaged.begin(step, 0.1);
                let gradient = [0, 1, 2].map(|i| ((step * 31 + i * 17) % 13) as f32 - 6.0);
                // In two pieces.
                for range in [0..2, 2..3] {
                    averaged.update(Update {
                        parameters: &mut weights[range.clone()],
                        gradient: &gradient[range.clone()],
                        range,
                        scale: 1.0,
                        decay: false,
                        group: 0,
                    });
                }
                let t = step as f64;
                let d = if warms_up { f64::min(decay, (1.0 + t) / (10.0 + t)) } else { decay };
                for (average, weight) in expected.iter_mut().zip(&weights) {
                    *average = d * *average + (1.0 - d) * f64::from(*weight);
                }
            }
            let found = averages(&mut averaged, &weights).unwrap();
            for (own, expected) in found.iter().zip(expected) {
                assert!((f64::from(*own) - expected).abs() < 1e-5, "{own} {expected}");
            }
            assert_eq!(found[3..], [7.0, 8.0, 9.0]);
        }
    }
}
