//! Delay of shard moves until other shares have been found better often enough. A CPU quota, for one, does
//! not slow a rank that has little to do: without memory shards would come and go for ever.

/// Number of comparisons in a row that have to find other shares better.
const AGREED: usize = 2;
/// Largest number of them for shards to come back to a rank that was slow again each time they did.
const MOST_AGREED: usize = 128;
/// Factor of "slow again soon": within this multiple of the comparisons that the return had waited for.
const SOON: usize = 10;

/// Memory of earlier comparisons and moves.
#[derive(Debug)]
pub(super) struct Hysteresis {
    /// Number of last comparisons that have found other shares better.
    in_favor: usize,
    /// Number of them that it takes for shards to come back.
    patience: usize,
    /// Comparisons since shards have come back.
    since_return: Option<usize>,
}

impl Hysteresis {
    /// Starts before any move.
    pub(super) fn new() -> Hysteresis {
        Hysteresis { in_favor: 0, patience: AGREED, since_return: None }
    }

    /// Returns true if shards move now. `favors` is true if a comparison favors a move, `is_return` if the
    /// move would give shards back to a relieved rank.
    pub(super) fn is_time(&mut self, favors: bool, is_return: bool) -> bool {
        self.since_return = self.since_return.map(|comparisons| comparisons + 1);
        self.in_favor = if favors { self.in_favor + 1 } else { 0 };
        if self.in_favor < if is_return { self.patience } else { AGREED } {
            return false;
        }
        self.in_favor = 0;
        if is_return {
            self.since_return = Some(0);
        } else {
            let is_soon = self.since_return.take().is_some_and(|since| since <= SOON * self.patience);
            self.patience = if is_soon { (2 * self.patience).min(MOST_AGREED) } else { AGREED };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_slow_only_under_load_gets_shards_back_more_and_more_rarely() {
        let (mut hysteresis, mut relieved, mut moves) = (Hysteresis::new(), false, Vec::new());
        for n in 0..1000 {
            // Slow whenever it has its shards, and fast without them.
            if hysteresis.is_time(true, relieved) {
                relieved = !relieved;
                moves.push(n);
            }
        }
        let stays: Vec<usize> = moves.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(stays[..8], [2, 2, 4, 2, 8, 2, 16, 2]);
        assert_eq!(stays.iter().max(), Some(&MOST_AGREED));
    }

    #[test]
    fn a_rank_that_has_recovered_for_long_begins_anew() {
        let mut hysteresis = Hysteresis::new();
        let mut moves = |favors: bool, is_return: bool, comparisons: usize| {
            (0..comparisons).filter(|_| hysteresis.is_time(favors, is_return)).count()
        };
        assert_eq!((moves(true, false, AGREED), moves(true, true, AGREED)), (1, 1));
        assert_eq!((moves(true, false, AGREED), moves(true, true, AGREED)), (1, 0), "slow again soon");
        assert_eq!(moves(true, true, AGREED), 1);
        assert_eq!(moves(false, false, SOON * 2 * AGREED), 0);
        assert_eq!((moves(true, false, AGREED), moves(true, true, AGREED)), (1, 1), "another trouble");
        assert_eq!(moves(true, false, 1) + moves(false, false, 1) + moves(true, false, 1), 0, "not in a row");
    }
}
