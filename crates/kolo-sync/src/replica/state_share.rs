//! The part of an optimizer's state that one rank holds, where it is divided among the ranks.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Collective, Group, Rank, Topology};
use kolo_optim::{Kind, Layout, Optimizer, ParamSpec, Scope, SpanId, find_in_state};
use kolo_reduction::{Error, Owners, Slice, slices};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Elements of flat memory that are gathered at once.
const STRETCH: usize = 1 << 22;

/// One rank's share of flat memory, and the place of its state: run by run, one after another.
pub(crate) struct StateShare {
    /// Ranks that share.
    group: Arc<Group>,
    owners: Arc<Owners>,
    /// Runs of flat memory, ascending, and where the state of each begins.
    runs: Vec<(Range<usize>, usize)>,
    /// Tensors, and parts of tensors, for which the optimizer has state.
    layout: Layout,
    /// Number of each of them in the model.
    spans: Vec<SpanId>,
}

impl StateShare {
    /// Deals flat memory to `ranks`, so that each part has `redundancy` owners.
    pub(crate) fn new(
        group: Arc<Group>,
        layout: &Layout,
        scope: Scope,
        ranks: &[Rank],
        redundancy: usize,
    ) -> Self {
        let parts = owners_of_parts(group.topology(), ranks, redundancy);
        let (owners, rank) = (Arc::new(Owners::dealt(layout, scope, &parts)), group.rank());
        Self::of(owners, group, layout, rank)
    }

    fn of(owners: Arc<Owners>, group: Arc<Group>, layout: &Layout, rank: Rank) -> Self {
        let (mut runs, mut own) = (Vec::new(), Vec::new());
        let mut start = 0;
        for run in owners.runs_of(rank) {
            own.extend(slices(layout, &run));
            let len = run.len();
            runs.push((run, start));
            start += len;
        }
        let specs = own.iter().map(|slice| spec_of(layout, slice)).collect();
        let spans = own.iter().map(|slice| slice.span).collect();
        StateShare { group, owners, runs, layout: Layout::new(specs), spans }
    }

    /// Owners of flat memory.
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// This rank among those that share.
    pub(crate) fn rank(&self) -> Rank {
        self.group.rank()
    }

    /// Layout for which the optimizer has state.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Runs of flat memory, each with the range of its state.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        self.runs.iter().map(|(run, start)| (run.clone(), *start..start + run.len()))
    }

    /// Gives all ranks an array, of which each has its runs: one stretch after another, because a message is
    /// a copy of what it carries. A collective.
    pub(crate) fn gather(&self, array: &mut [f32]) -> Result<(), Error> {
        let first_owner =
            |(run, owners): (&Range<usize>, &[Rank])| owners.first().map(|owner| (*owner, run.clone()));
        let mut runs: Vec<(Rank, Range<usize>)> = self.owners.parts().filter_map(first_owner).collect();
        let of_stretch =
            |a: &(_, Range<usize>), b: &(_, Range<usize>)| a.1.start / STRETCH == b.1.start / STRETCH;
        for stretch in runs.chunk_by_mut(of_stretch) {
            stretch.sort_by_key(|(owner, run)| (*owner, run.start));
            let (mut lens, mut message) = (vec![0; self.group.world_size()], Vec::new());
            for (owner, run) in &*stretch {
                lens[owner.0] += run.len();
                message.extend_from_slice(&array[run.clone()]);
            }
            self.group.run_on_slice(&Collective::AllGather(Chunks::Varied(lens.into())), &mut message)?;
            let mut rest = &message[..];
            for (_, run) in stretch {
                let (values, others) = rest.split_at(run.len());
                array[run.clone()].copy_from_slice(values);
                rest = others;
            }
        }
        Ok(())
    }

    /// Returns the range of the state of elements that this rank owns.
    pub(crate) fn place(&self, elements: Range<usize>) -> Range<usize> {
        let next = self.runs.partition_point(|(run, _)| run.start <= elements.start);
        let (run, start) = &self.runs[next.saturating_sub(1)];
        let first = start + (elements.start - run.start);
        first..first + elements.len()
    }

    /// Returns true on all ranks if `own` is on one. A collective.
    pub(crate) fn any(&self, own: bool) -> Result<bool, Error> {
        Ok(self.all(&own)?.contains(&true))
    }

    /// Returns what each rank has found. A collective.
    pub(crate) fn all<S: Serialize + ?Sized, T: DeserializeOwned>(&self, own: &S) -> Result<Vec<T>, Error> {
        Ok(self.group.all_gather_value(&own)?)
    }

    /// Returns the first tensor whose state `is_wrong` finds on some rank, with the number of the array. A
    /// collective.
    pub(crate) fn find(
        &self,
        optimizer: &mut dyn Optimizer,
        is_wrong: impl Fn(SpanId, &[f32]) -> bool,
    ) -> Result<Option<(usize, SpanId)>, Error> {
        let model = |part: SpanId| self.spans[part.0];
        let own = find_in_state(optimizer, &self.layout, |part, values| is_wrong(model(part), values));
        let own = own.map(|(array, part)| (array, model(part)));
        let all: Vec<Option<(usize, SpanId)>> = self.group.all_gather_value(&own)?;
        Ok(all.into_iter().flatten().min())
    }
}

/// Returns the owners of each part, of which there is one for each of `ranks`, in their order: that rank,
/// and the ones that follow it in a ring. Neighbors in the ring are on different hosts as far as the hosts
/// have equally many ranks, so a host's death leaves an owner of each part.
fn owners_of_parts(topology: &Topology, ranks: &[Rank], redundancy: usize) -> Vec<Vec<Rank>> {
    let of_host = |host: &Vec<Rank>| host.iter().copied().filter(|rank| ranks.contains(rank)).collect();
    let hosts: Vec<Vec<Rank>> = topology.nodes().iter().map(of_host).collect();
    let most = hosts.iter().map(Vec::len).max().unwrap_or(0);
    // One rank of each host after another.
    let ring: Vec<Rank> =
        (0..most).flat_map(|place| hosts.iter().filter_map(move |host| host.get(place))).copied().collect();
    let of = |rank: &Rank| {
        let place = ring.iter().position(|other| other == rank).unwrap_or(0);
        let following = ring[place..].iter().chain(&ring[..place]).copied();
        following.take(redundancy).collect()
    };
    ranks.iter().map(of).collect()
}

/// Returns the description of a part of a tensor.
fn spec_of(layout: &Layout, slice: &Slice) -> ParamSpec {
    let span = layout.span(slice.span);
    match slice.elements.len() == span.len {
        true => span.spec.clone(),
        // Only the number of elements counts for a rule that steps each by itself.
        false => {
            let kind = if span.spec.kind.is_trained() { span.spec.kind } else { Kind::Frozen };
            ParamSpec::new(span.spec.name.clone(), vec![slice.elements.len()], kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_comm::threads;
    use kolo_reduction::BLOCK;

    #[test]
    fn the_owners_of_a_part_are_on_different_hosts() {
        let owners = |hosts: &[&str], ranks: &[usize]| -> Vec<Vec<usize>> {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            let parts = owners_of_parts(&Topology::of_names(hosts), &ranks, 2);
            parts.into_iter().map(|part| part.into_iter().map(|rank| rank.0).collect()).collect()
        };
        assert_eq!(owners(&["a"; 3], &[0, 1, 2]), [[0, 1], [1, 2], [2, 0]]);
        let two = ["a", "a", "b", "b"];
        assert_eq!(owners(&two, &[0, 1, 2, 3]), [[0, 2], [1, 3], [2, 1], [3, 0]]);
        // Rank 1 leaves, so that two owners of some part are on one host.
        assert_eq!(owners(&two, &[0, 2, 3]), [[0, 2], [2, 3], [3, 0]]);
        assert_eq!(owners(&two, &[3]), [[3]]);
    }

    /// More elements than a stretch, and tensors whose ends are in the middle of one.
    #[test]
    fn all_ranks_get_the_runs_of_all() {
        let spec = |blocks: &usize| {
            ParamSpec::new("tensor", vec![blocks * BLOCK + 7], Kind::Parameter { decay: true })
        };
        let layout = Layout::new([3, 20, 250, 1].iter().map(spec).collect());
        assert!(layout.len() > STRETCH);
        let expected: Vec<f32> = (0..layout.len()).map(|element| element as f32).collect();
        for (scope, redundancy) in [(Scope::Element, 1), (Scope::Element, 2), (Scope::Tensor, 1)] {
            let gathered = threads::spawn(3, |group| {
                let ranks = [0, 1, 2].map(Rank);
                let share = StateShare::new(Arc::new(group), &layout, scope, &ranks, redundancy);
                let mut array = vec![f32::NAN; layout.len()];
                share.runs().for_each(|(run, _)| array[run.clone()].copy_from_slice(&expected[run]));
                share.gather(&mut array).unwrap();
                array
            });
            assert!(gathered.unwrap().iter().all(|array| *array == expected), "{scope:?}, {redundancy}");
        }
    }

    #[test]
    fn state_of_two_runs_lies_one_behind_the_other() {
        let kind = Kind::Parameter { decay: true };
        let specs = [("a", BLOCK + 5), ("none", 0), ("b", 2 * BLOCK), ("c", 7)];
        let spec = |(name, len): &(&str, usize)| ParamSpec::new(*name, vec![*len], kind);
        let layout = Layout::new(specs.iter().map(spec).collect());
        let ranks = [0, 1, 2].map(Rank);
        let all = layout.len();
        let (group, mut held) = (Arc::new(Group::alone()), 0);
        for rank in ranks {
            let owners = Arc::new(Owners::split(&layout, Scope::Element, &ranks, 2));
            let share = StateShare::of(owners.clone(), group.clone(), &layout, rank);
            assert_eq!(share.layout.len(), share.runs().map(|(run, _)| run.len()).sum::<usize>());
            held += share.layout.len();
            let mut next = 0;
            for (run, state) in share.runs() {
                assert_eq!(state.start, next);
                assert_eq!(share.place(run.clone()), state);
                assert_eq!(share.place(run.end - 3..run.end), state.end - 3..state.end);
                assert!(run.clone().all(|element| owners.of(element).contains(&rank)));
                next = state.end;
            }
        }
        assert_eq!(held, 2 * all, "each element has two owners");
    }
}
