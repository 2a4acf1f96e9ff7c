//! One dimension of a convolution, and its positions that can be computed together.

use std::ops::Range;

/// Height or width: the number of positions, and those that the kernel's taps see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of positions of the input, without padding.
    pub input: usize,
    /// Number of positions of the output.
    pub output: usize,
    /// Number of taps of the kernel.
    pub kernel: usize,
    /// Input positions between adjacent output positions.
    pub stride: usize,
    /// Positions of padding before the input.
    pub padding: usize,
    /// Input positions between adjacent taps.
    pub dilation: usize,
}

/// Source positions that the taps see, for each target position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// Distinct patterns of the runs.
    pub(super) patterns: Vec<Pattern>,
    /// Distance between the sources of adjacent targets of a run.
    pub(super) step: usize,
}

/// Consecutive target positions with the same pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) targets: Range<usize>,
    /// Source position of the pattern's first tap for the first target.
    pub(super) source: usize,
    /// Index of the pattern.
    pub(super) pattern: usize,
}

/// Taps that see more than padding, each with its distance from the first of them.
pub(super) type Pattern = Vec<(usize, isize)>;

impl Axis {
    /// Returns the input position that `tap` sees from `output`, or `None` for padding.
    pub(crate) fn source(&self, output: usize, tap: usize) -> Option<usize> {
        let position = (output * self.stride + tap * self.dilation).checked_sub(self.padding)?;
        (position < self.input).then_some(position)
    }

    /// Returns the output positions from which `tap` sees more than padding.
    pub(super) fn outputs_of(&self, tap: usize) -> Range<usize> {
        let offset = tap * self.dilation;
        let first = self.padding.saturating_sub(offset).div_ceil(self.stride);
        let end = (self.input + self.padding).saturating_sub(offset).div_ceil(self.stride).min(self.output);
        first.min(end)..end
    }

    /// Returns the source of each output position. Neighbors with the same pattern form one run if `joined`
    /// allows their step.
    pub(super) fn outputs(&self, joined: impl Fn(usize) -> bool) -> Plan {
        let seen = |output, tap| self.source(output, tap);
        plan(self.output, self.kernel, seen, self.stride, joined(self.stride))
    }

    /// Returns, in the opposite direction, the output positions that see each input position.
    pub(super) fn inputs(&self, joined: impl Fn(usize) -> bool) -> Plan {
        let seen = |input: usize, tap| {
            let distance = (input + self.padding).checked_sub(tap * self.dilation)?;
            let output = distance / self.stride;
            (distance % self.stride == 0 && output < self.output).then_some(output)
        };
        plan(self.input, self.kernel, seen, 1, self.stride == 1 && joined(1))
    }
}

fn plan(
    targets: usize,
    kernel: usize,
    seen: impl Fn(usize, usize) -> Option<usize>,
    step: usize,
    joined: bool,
) -> Plan {
    let mut plan = Plan { step, ..Plan::default() };
    for target in 0..targets {
        let taps: Vec<(usize, usize)> =
            (0..kernel).filter_map(|tap| Some((tap, seen(target, tap)?))).collect();
        let source = taps.first().map_or(0, |(_, first)| *first);
        let relative = taps.iter().map(|(tap, at)| (*tap, *at as isize - source as isize)).collect();
        let pattern = plan.number(relative);
        match plan.runs.last_mut() {
            Some(run)
                if joined && run.pattern == pattern && run.source + run.targets.len() * step == source =>
            {
                run.targets.end += 1;
            }
            _ => plan.runs.push(Run { targets: target..target + 1, source, pattern }),
        }
    }
    plan
}

impl Plan {
    fn number(&mut self, pattern: Pattern) -> usize {
        let known = self.patterns.iter().position(|known| *known == pattern);
        known.unwrap_or_else(|| {
            self.patterns.push(pattern);
            self.patterns.len() - 1
        })
    }

    /// Returns true if any target sees a source by this tap.
    pub(super) fn sees(&self, tap: usize) -> bool {
        self.patterns.iter().flatten().any(|(seen, _)| *seen == tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padded_row_has_its_ends_apart() {
        let axis = Axis { input: 5, output: 5, kernel: 3, stride: 1, padding: 1, dilation: 1 };
        let plan = axis.outputs(|_| true);
        assert_eq!(plan.patterns, [vec![(1, 0), (2, 1)], vec![(0, 0), (1, 1), (2, 2)], vec![(0, 0), (1, 1)]]);
        let run = |targets, source, pattern| Run { targets, source, pattern };
        assert_eq!(plan.runs, [run(0..1, 0, 0), run(1..4, 0, 1), run(4..5, 3, 2)]);
        assert_eq!(axis.outputs(|_| false).runs.len(), 5);
    }

    #[test]
    fn inputs_are_the_outputs_seen_from_the_other_side() {
        for (input, kernel, stride, padding, dilation) in
            [(5, 3, 1, 1, 1), (8, 3, 2, 1, 1), (9, 2, 3, 0, 2), (7, 1, 2, 0, 1), (4, 5, 1, 4, 1)]
        {
            let output = (input + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
            let axis = Axis { input, output, kernel, stride, padding, dilation };
            let outputs = triples(&axis.outputs(|_| true));
            for tap in 0..kernel {
                let seen = outputs.iter().filter(|(_, by, _)| *by == tap).map(|(output, ..)| *output);
                assert!(axis.outputs_of(tap).eq(seen), "{axis:?}, tap {tap}");
            }
            let mut inputs = triples(&axis.inputs(|_| true));
            inputs.iter_mut().for_each(|(target, _, source)| std::mem::swap(target, source));
            inputs.sort_unstable();
            assert_eq!(outputs, inputs, "{axis:?}");
        }
    }

    /// Returns target, tap and source, sorted.
    fn triples(plan: &Plan) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for run in &plan.runs {
            for (index, target) in run.targets.clone().enumerate() {
                let first = run.source + index * plan.step;
                let taps = plan.patterns[run.pattern].iter();
                all.extend(taps.map(|(tap, offset)| (target, *tap, first.strict_add_signed(*offset))));
            }
        }
        all.sort_unstable();
        all
    }
}
