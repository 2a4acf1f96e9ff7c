//! Ways to run a job that the job rules out.

use kolo_comm::schedule::{ALGORITHMS, Algorithm, Operation, Problem};
use kolo_comm::tree::{Contributions, share};
use kolo_comm::{Rank, Topology};
use kolo_ddp::verify::trace::Start;

use super::axes::Run;

/// Returns the reason that an algorithm cannot sum this many shards of each rank; `None` if it can.
pub(super) fn refusal(algorithm: &Algorithm, shares: &[usize]) -> Option<&'static str> {
    let (contributions, topology) = (&Contributions::of_shares(shares), &Topology::single(shares.len()));
    let operation = &Operation::AllReduce;
    let problem = Problem { operation, rank: Rank(0), len: 1, contributions, topology, segment: 1 };
    (algorithm.build)(&problem).err()
}

/// Returns the reason that a job with this start cannot be run in this way: with servers, tuned, or with an
/// algorithm that cannot divide its shards among the workers. Returns `None` if it can.
pub(super) fn obstacle(
    run: &Run,
    &Start { shards, islands, sharded, foreign, tunable, .. }: &Start,
) -> Option<&'static str> {
    if islands && run.servers > 0 {
        return Some("islands synchronize too rarely for servers");
    }
    if foreign && (run.servers > 0 || run.tuned) {
        return Some("the program has neither servers nor tuning");
    }
    if sharded && run.servers > 0 {
        return Some("each worker adds and steps a part already, without servers");
    }
    if run.tuned && !tunable {
        return Some("no two of its steps have nothing on its way between them");
    }
    let algorithm = ALGORITHMS.iter().find(|algorithm| Some(algorithm.name) == run.algorithm.as_deref())?;
    let mut shares: Vec<usize> =
        (0..run.workers).map(|rank| share(shards, run.workers, Rank(rank)).len()).collect();
    shares.resize(run.workers + run.servers, 0);
    refusal(algorithm, &shares)
}

/// True if an algorithm adds in the order of the tree.
pub(super) fn keeps_tree(name: &str) -> bool {
    ALGORITHMS.iter().any(|algorithm| algorithm.name == name && algorithm.keeps_tree)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn start(shards: usize) -> Start {
        let (transport, tensors) = ("solo".into(), Vec::new());
        let (islands, sharded, foreign) = (false, false, false);
        Start { world_size: 1, shards, islands, sharded, foreign, tunable: true, transport, tensors }
    }

    #[test]
    fn three_shards_a_worker_are_not_for_halving() {
        let run =
            |algorithm: Option<&str>| Run { algorithm: algorithm.map(String::from), ..Run::plain(2, 25.0) };
        let halving = obstacle(&run(Some("halving-doubling")), &start(6));
        assert!(halving.is_some_and(|why| why.contains("power-of-two")));
        assert_eq!(obstacle(&run(Some("halving-doubling")), &start(8)), None);
        assert_eq!(obstacle(&run(Some("direct")), &start(6)), None);
        assert_eq!(obstacle(&run(None), &start(6)), None);
        let served = |algorithm: &str| Run { servers: 1, ..run(Some(algorithm)) };
        assert_eq!(obstacle(&served("direct"), &start(8)), None);
        assert!(obstacle(&served("halving-doubling"), &start(8)).is_some());
        let tuned = Run { tuned: true, ..run(None) };
        assert_eq!(obstacle(&tuned, &start(6)), None);
        assert!(obstacle(&tuned, &Start { tunable: false, ..start(6) }).is_some());
        assert!(obstacle(&served("direct"), &Start { sharded: true, ..start(8) }).is_some());
        let of_torch = Start { foreign: true, tunable: false, ..start(8) };
        for other in [served("direct"), tuned] {
            assert!(
                obstacle(&other, &of_torch).is_some_and(|why| why.contains("neither servers nor tuning"))
            );
        }
        assert_eq!(obstacle(&run(Some("direct")), &of_torch), None);
        assert!(obstacle(&served("direct"), &Start { islands: true, ..start(8) }).is_some());
    }
}
