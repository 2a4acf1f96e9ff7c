//! Turns: steps that train some of the tensors, one network after another.

use super::error::GroupError;
use super::param_group::ParamGroup;
use super::selector::Selector;
use super::span_groups;
use crate::layout::{Layout, SpanId};

/// The tensors that each step trains. Without turns each step trains all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// For each turn, the first turn with the same tensors.
    first: Vec<usize>,
    /// For each tensor, the first turn that trains it; `None` for tensors that every step may change.
    of_span: Vec<Option<usize>>,
}

impl Turns {
    /// Finds the tensors of each turn.
    ///
    /// # Errors
    ///
    /// A pattern or a turn selects no trained tensor, a trained tensor is in no turn, or two turns share some
    /// of their tensors.
    pub fn new(turns: &[Vec<Selector>], model: &Layout) -> Result<Self, GroupError> {
        if turns.is_empty() {
            return Ok(Turns::default());
        }
        let groups: Vec<ParamGroup> = turns.iter().map(|turn| ParamGroup::of(turn.clone())).collect();
        groups.iter().try_for_each(|group| span_groups::check(group, model))?;
        let tensors = |group: &ParamGroup| -> Vec<bool> {
            model.spans().iter().map(|span| group.selects(&span.spec, model)).collect()
        };
        let selected: Vec<Vec<bool>> = groups.iter().map(tensors).collect();
        let same_as = |turn: &Vec<bool>| selected.iter().position(|other| other == turn).unwrap_or(0);
        let first: Vec<usize> = selected.iter().map(same_as).collect();
        let mut of_span = vec![None; model.spans().len()];
        for (id, span) in model.spans().iter().enumerate().filter(|(_, span)| span.spec.kind.is_trained()) {
            let mut turns_of = (0..turns.len()).filter(|turn| selected[*turn][id]).map(|turn| first[turn]);
            let (tensor, one) = (span.spec.name.clone(), turns_of.next());
            let Some(one) = one else { return Err(GroupError::NoTurn { tensor }) };
            if let Some(other) = turns_of.find(|turn| *turn != one) {
                return Err(GroupError::TwoTurns { tensor, turns: [one, other] });
            }
            of_span[id] = Some(one);
        }
        Ok(Turns { first, of_span })
    }

    /// Returns true if step `step`, counted from 0, leaves a tensor as it is, because it is not its turn.
    pub fn leaves(&self, step: u64, id: SpanId) -> bool {
        let now = || self.first[self.place(step)];
        self.of_span.get(id.0).copied().flatten().is_some_and(|turn| turn != now())
    }

    /// Returns the number of updates, from 1, that the tensors of step `step` have had after it.
    pub fn updates(&self, step: u64) -> u64 {
        if self.first.is_empty() {
            return step + 1;
        }
        let (place, now) = (self.place(step), self.first[self.place(step)]);
        let among = |turns: &[usize]| turns.iter().filter(|turn| **turn == now).count() as u64;
        step / self.first.len() as u64 * among(&self.first) + among(&self.first[..=place])
    }

    fn place(&self, step: u64) -> usize {
        (step % self.first.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Kind, ParamSpec};

    fn model() -> Layout {
        let kind = Kind::Parameter { decay: true };
        let spec = |name: &&str| ParamSpec::new(*name, vec![2], kind);
        let mean = ParamSpec::new("critic.mean", vec![2], Kind::Statistic);
        Layout::new(["critic.a", "critic.b", "maker.a"].iter().map(spec).chain([mean]).collect())
    }

    fn turns(turns: &[&str]) -> Result<Turns, GroupError> {
        let turns: Vec<Vec<Selector>> =
            turns.iter().map(|turn| turn.split(',').map(Selector::from).collect()).collect();
        Turns::new(&turns, &model())
    }

    #[test]
    fn each_network_counts_its_own_updates() {
        let turns = turns(&["critic.*", "critic.*", "maker.*"]).unwrap();
        let leaves = |step, id| turns.leaves(step, SpanId(id));
        for (step, updates, critic) in
            [(0, 1, true), (1, 2, true), (2, 1, false), (3, 3, true), (4, 4, true), (5, 2, false)]
        {
            assert_eq!(turns.updates(step), updates, "step {step}");
            assert_eq!([0, 1, 2, 3].map(|id| leaves(step, id)), [!critic, !critic, critic, false]);
        }
        assert_eq!((turns.updates(3_000_000), turns.updates(3_000_002)), (2_000_001, 1_000_001));
    }

    #[test]
    fn without_turns_each_step_trains_everything() {
        let turns = turns(&[]).unwrap();
        assert_eq!((turns.updates(0), turns.updates(6)), (1, 7));
        assert!((0..4).all(|id| !turns.leaves(5, SpanId(id))));
    }

    #[test]
    fn a_tensor_without_a_turn_or_with_two_is_named() {
        let error = |given: &[&str]| turns(given).unwrap_err().to_string();
        let words = error(&["critic.*", "makr.*"]);
        assert!(words.starts_with("makr.*: this selects no trained parameter; there are "), "{words}");
        let words = error(&["critic.*"]);
        assert!(words.starts_with("`maker.a` is in no turn, so no step would train it;"), "{words}");
        let words = error(&["critic.*", "critic.a,maker.a"]);
        assert!(words.starts_with("`critic.a` is in the turns 0 and 1, which differ otherwise;"), "{words}");
        let words = error(&["critic.*", ""]);
        assert!(words.starts_with(": this selects no trained parameter"), "{words}");
    }
}
