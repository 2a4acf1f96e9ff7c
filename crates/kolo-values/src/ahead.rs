//! Prediction of the next tensors, from the order in which this rank has used them before.

use std::collections::HashMap;

use kolo_optim::SpanId;

/// Two uses, one after the other. Before the first one of a step there is none.
type Pair = (Option<SpanId>, Option<SpanId>);

/// Order of uses: what followed each pair of uses the last time. Two uses, because a tensor may be used in
/// several places.
#[derive(Debug, Default)]
pub(crate) struct Order {
    followers: HashMap<Pair, SpanId>,
    last: Pair,
}

impl Order {
    /// Notes a use.
    pub(crate) fn used(&mut self, span: SpanId) {
        self.followers.insert(self.last, span);
        self.last = (self.last.1, Some(span));
    }

    /// Ends a step: its last use does not predict the first one of the next step.
    pub(crate) fn end(&mut self) {
        self.last = (None, None);
    }

    /// Returns the uses that follow, as far as they are known, at most `count`.
    pub(crate) fn next(&self, count: usize) -> Vec<SpanId> {
        let mut last = self.last;
        let follow = || {
            let next = *self.followers.get(&last)?;
            last = (last.1, Some(next));
            Some(next)
        };
        std::iter::from_fn(follow).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_predicted_by_the_one_before() {
        let mut order = Order::default();
        // A tied tensor: 0 follows 2 once, and itself once.
        let step = [0, 1, 2, 0, 0, 2, 1].map(SpanId);
        for round in 0..3 {
            for (place, span) in step.into_iter().enumerate() {
                order.used(span);
                let known = if round == 0 { 0 } else { 2.min(step.len() - place - 1) };
                assert_eq!(order.next(2), step[place + 1..][..known], "{round}, {place}");
            }
            order.end();
            assert_eq!(order.next(3), step[..3]);
        }
        // Another way through the model is learned from its second time on.
        order.used(SpanId(5));
        assert_eq!(order.next(2), []);
    }
}
