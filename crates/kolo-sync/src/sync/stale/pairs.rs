//! Turns in which workers and servers meet in pairs.

/// Returns the pairs of workers and servers, as indices, in turns. In a turn each worker and each server has
/// at most one pair.
pub(super) fn pairs(workers: usize, servers: usize) -> Vec<Vec<(usize, usize)>> {
    let turns = workers.max(servers);
    let turn = |turn: usize| {
        let pair = |worker: usize| (worker, (worker + turn) % turns);
        (0..workers).map(pair).filter(|(_, server)| *server < servers).collect()
    };
    (0..turns).map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_and_every_server_are_a_pair_once() {
        for workers in 1..6 {
            for servers in 1..6 {
                let turns = pairs(workers, servers);
                let mut all: Vec<_> = turns.concat();
                all.sort_unstable();
                let every = (0..workers).flat_map(|worker| (0..servers).map(move |server| (worker, server)));
                assert!(all.into_iter().eq(every));
                for turn in turns {
                    let mut used: Vec<_> = turn.iter().map(|(_, server)| server).collect();
                    used.sort_unstable();
                    used.dedup();
                    assert_eq!(used.len(), turn.len());
                }
            }
        }
    }
}
