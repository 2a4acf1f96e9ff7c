//! All sets of ranks, and of their stages, that tests of deaths try.

/// Returns all subsets of the numbers below `count`.
pub fn subsets<C: FromIterator<usize>>(count: usize) -> impl Iterator<Item = C> {
    (0..1usize << count).map(move |bits| (0..count).filter(|index| bits >> index & 1 == 1).collect())
}

/// Returns the stages of so many ranks that can occur together. `least` returns the stage that every rank has
/// reached when one has reached the given stage.
pub fn stages<S: Copy + Ord>(ranks: usize, all: &[S], least: impl Fn(S) -> S) -> Vec<Vec<S>> {
    let longer = |stages: &Vec<S>| -> Vec<Vec<S>> {
        all.iter().map(|stage| [&stages[..], &[*stage]].concat()).collect()
    };
    let every = (0..ranks).fold(vec![Vec::new()], |every, _| every.iter().flat_map(longer).collect());
    let can_occur =
        |stages: &Vec<S>| stages.iter().min() >= stages.iter().max().map(|most| least(*most)).as_ref();
    every.into_iter().filter(can_occur).collect()
}
