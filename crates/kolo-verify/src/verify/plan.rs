//! The runs to compare: a selection in which every choice occurs once, or every combination of choices.

use kolo_comm::schedule::{ALGORITHMS, Algorithm};
use kolo_comm::{SHM, TransportKind};
use kolo_ddp::Sharding;
use kolo_ddp::table::Value;
use kolo_program::Failure;

use super::axes::{Axes, Extent, Run};
use super::obstacle::{keeps_tree, refusal};

/// Number of summation servers in the run that has some.
const SERVERS: usize = 2;

/// The algorithm that sums on servers.
const KNOWS_SERVERS: &str = "direct";

/// Returns the runs to compare.
///
/// - The first run is the reference, with one worker and large buckets; the second repeats it.
/// - For each number of workers, one run is cut in its middle and continues from a checkpoint, if there are
///   steps on both sides of the cut.
/// - Unless they are to be few, one run with the most workers is tuned, if the user gave no algorithm that does
///   not keep the tree, one divides each kind of state that the job can divide, another one recomputes the
///   activations of its model, one has the optimizer's state in a file, and the last run has servers, if the
///   user gave no algorithm without servers.
///
/// Errors: a number of workers is 0, or a bucket size is not a positive number.
pub(crate) fn plan(axes: &Axes) -> Result<Vec<Run>, Failure> {
    if axes.workers.contains(&0) {
        return Err(Failure::input("--workers 0: it must be at least 1"));
    }
    if let Some(cap) = axes.caps.iter().find(|cap| !(**cap > 0.0 && cap.is_finite())) {
        let cap = Value::Number(*cap);
        return Err(Failure::input(format!("--bucket-caps-mb {cap}: it must be greater than 0, and finite")));
    }
    let caps = if axes.caps.is_empty() { &[25.0][..] } else { &axes.caps };
    let alone = Run::plain(1, caps[0]);
    let mut runs = vec![alone.clone(), Run { again: true, ..alone.clone() }];
    runs.extend(caps[1..].iter().map(|&cap| Run { cap, ..alone.clone() }));
    let cut = cut_after(axes.steps);
    let resumed = |run: &Run| cut.map(|cut| Run { resumed_after: Some(cut), ..run.clone() });
    runs.extend(resumed(&alone));
    for &workers in axes.workers.iter().filter(|workers| **workers > 1) {
        let (transports, algorithms) = (transports(axes), algorithms(axes, workers));
        let first = runs.len();
        let count = match axes.extent {
            Extent::Brief => 1,
            Extent::Full => caps.len() * transports.len() * algorithms.len(),
            // As many runs as the longest list has entries: every entry of each list occurs.
            Extent::Selection => caps.len().max(transports.len()).max(algorithms.len()),
        };
        for number in 0..count {
            // A selection walks through the lists together; all combinations nest them.
            let [cap, transport, algorithm] = match axes.extent {
                Extent::Full => [
                    number % caps.len(),
                    number / caps.len() % transports.len(),
                    number / caps.len() / transports.len(),
                ],
                _ => [number % caps.len(), number % transports.len(), number % algorithms.len()],
            };
            runs.push(Run {
                workers,
                cap: caps[cap],
                transport: Some(transports[transport].clone()),
                algorithm: algorithms[algorithm].clone(),
                ..alone.clone()
            });
        }
        let resumed = resumed(&runs[first]);
        runs.extend(resumed);
    }
    if axes.extent == Extent::Brief {
        return Ok(runs);
    }
    let most = axes.workers.iter().filter(|workers| **workers > 1).max();
    let can_be_tuned = axes.algorithm.as_deref().is_none_or(keeps_tree);
    if let Some(&workers) = most.filter(|_| can_be_tuned) {
        let (transport, algorithm) = (transports(axes).pop(), axes.algorithm.clone());
        runs.push(Run { workers, transport, algorithm, tuned: true, ..alone.clone() });
    }
    // Each over another transport.
    if let Some(&workers) = most {
        let algorithm = axes.algorithm.clone();
        let plain = Run { workers, algorithm, ..alone.clone() };
        let in_turn = transports(axes).into_iter().rev().cycle();
        let of_state = |(state, transport): (&&'static str, String)| {
            // One copy for all workers needs memory that they share.
            let needs_memory = *state == Sharding::Host.name();
            let transport = if needs_memory { SHM.name.to_string() } else { transport };
            let run = Run { transport: Some(transport), divided: Some(state), ..plain.clone() };
            run.transport.as_ref().is_some_and(|name| transports(axes).contains(name)).then_some(run)
        };
        runs.extend(axes.divisible.iter().zip(in_turn).filter_map(of_state));
        let transport = transports(axes).pop();
        let recomputed = Run { transport: transport.clone(), recomputed: true, ..plain.clone() };
        runs.extend(axes.recomputes.then_some(recomputed));
        runs.extend(axes.offloads.then_some(Run { transport, offloaded: true, ..plain }));
    }
    let knows_servers = axes.algorithm.as_deref().is_none_or(|algorithm| algorithm == KNOWS_SERVERS);
    if let Some(&workers) = most.filter(|_| knows_servers) {
        // Over sockets, where servers pay.
        let (transport, algorithm) = (transports(axes).pop(), Some(KNOWS_SERVERS.into()));
        runs.push(Run { workers, servers: SERVERS, transport, algorithm, ..alone });
    }
    Ok(runs)
}

/// Returns the step after which some runs are cut; `None` if there are no steps on both sides of it.
pub(super) fn cut_after(steps: u64) -> Option<u64> {
    (steps > 1).then_some(steps / 2)
}

fn transports(axes: &Axes) -> Vec<String> {
    match &axes.transport {
        Some(transport) => vec![transport.clone()],
        None => TransportKind::names().into_iter().map(String::from).collect(),
    }
}

/// Returns the algorithms to try: first the program's own choice (`None`), then those that keep the tree and
/// support that number of workers.
fn algorithms(axes: &Axes, workers: usize) -> Vec<Option<String>> {
    if let Some(algorithm) = &axes.algorithm {
        return vec![Some(algorithm.clone())];
    }
    let is_tried =
        |algorithm: &&Algorithm| algorithm.keeps_tree && refusal(algorithm, &vec![1; workers]).is_none();
    let names = ALGORITHMS.iter().filter(is_tried).map(|algorithm| Some(algorithm.name.to_string()));
    [None].into_iter().chain(names).collect()
}

#[cfg(test)]
mod tests {
    use super::super::obstacle::obstacle;
    use super::super::obstacle::tests::start;
    use super::*;

    const STATES: [&str; 4] = ["optimizer", "gradients", "parameters", "host"];

    fn axes(workers: &[usize], full: bool) -> Axes {
        let (workers, caps) = (workers.into(), vec![25.0, 0.5]);
        let extent = if full { Extent::Full } else { Extent::Selection };
        Axes {
            workers,
            caps,
            transport: None,
            algorithm: None,
            extent,
            steps: 1,
            divisible: Vec::new(),
            recomputes: false,
            offloads: false,
        }
    }

    /// Kolo's own choice, and the algorithms of one host that keep the tree.
    const EXACT: [&str; 6] =
        ["-", "direct", "one-shot", "halving-doubling", "recursive-doubling", "binomial"];

    #[test]
    fn a_selection_has_every_entry_of_every_list() {
        let runs = plan(&axes(&[2, 3], false)).unwrap();
        assert!(runs[0].workers == 1 && runs[1].again && runs[2].cap == 0.5);
        for workers in [2, 3] {
            let own =
                || runs.iter().filter(move |run| run.workers == workers && run.servers == 0 && !run.tuned);
            let algorithms: Vec<_> = own().map(|run| run.algorithm.as_deref().unwrap_or("-")).collect();
            assert_eq!(algorithms, EXACT, "each once");
            assert!([25.0, 0.5].iter().all(|cap| own().any(|run| run.cap == *cap)));
            let transport = |name: &str| own().any(|run| run.transport.as_deref() == Some(name));
            assert!(transport("shm") && transport("tcp"));
        }
    }

    #[test]
    fn a_brief_plan_has_a_run_and_a_cut_one_for_each_number_of_workers() {
        let brief = Axes { extent: Extent::Brief, caps: vec![25.0], steps: 8, ..axes(&[2, 3], false) };
        let runs = plan(&brief).unwrap();
        let workers: Vec<_> = runs.iter().map(|run| (run.workers, run.resumed_after)).collect();
        let cut = Some(4);
        assert_eq!(workers, [(1, None), (1, None), (1, cut), (2, None), (2, cut), (3, None), (3, cut)]);
        assert!(runs.iter().all(|run| run.servers == 0 && !run.tuned));
    }

    #[test]
    fn every_algorithm_is_tried_that_keeps_the_tree_and_needs_no_nodes() {
        let names = |workers| algorithms(&axes(&[workers], false), workers);
        for workers in 2..9 {
            let tried: Vec<String> = names(workers).into_iter().flatten().collect();
            for algorithm in ALGORITHMS {
                let expected = algorithm.keeps_tree && algorithm.name != "hierarchical";
                assert_eq!(tried.iter().any(|name| name == algorithm.name), expected, "{algorithm:?}");
            }
        }
    }

    /// Algorithms that add whole subtrees are left out with most numbers of shards, so a small job is
    /// verified by 22 runs where there were 19 without them.
    #[test]
    fn the_default_selection_stays_short() {
        let axes = Axes {
            caps: vec![25.0, 0.5, 0.0625],
            steps: 8,
            divisible: STATES.into(),
            ..axes(&[2, 3], false)
        };
        for (shards, count) in [(2, 22), (4, 22), (6, 22), (8, 22), (5, 19)] {
            let start = start(shards);
            let made = plan(&axes).unwrap().iter().filter(|run| obstacle(run, &start).is_none()).count();
            assert_eq!(made, count, "{shards} shards");
        }
        // The number of runs of the example in docs/verify.md.
        let documented =
            Axes { extent: Extent::Full, caps: vec![25.0, 0.5], workers: vec![2, 3, 5, 8, 9], ..axes };
        let documented = plan(&documented).unwrap();
        assert_eq!(documented.iter().filter(|run| obstacle(run, &start(8)).is_none()).count(), 99);
    }

    #[test]
    fn everything_with_everything_has_no_two_alike() {
        let runs = plan(&axes(&[2, 3], true)).unwrap();
        assert_eq!(runs.len(), 3 + 2 * 2 * 2 * EXACT.len() + 2);
        assert_eq!(runs.iter().filter(|run| run.tuned && run.workers == 3).count(), 1);
        assert_eq!(runs.iter().filter(|run| run.servers > 0).count(), 1);
        for (number, run) in runs.iter().enumerate() {
            assert!(!runs[..number].contains(run), "{run:?}");
        }
    }

    #[test]
    fn each_state_that_a_job_can_divide_is_divided_in_one_run() {
        let runs = |divisible: &[&'static str], extent| {
            plan(&Axes { divisible: divisible.into(), extent, ..axes(&[2, 3], false) }).unwrap()
        };
        for extent in [Extent::Selection, Extent::Full] {
            let (divided, others): (Vec<Run>, Vec<Run>) =
                runs(&STATES, extent).into_iter().partition(|run| run.divided.is_some());
            let found: Vec<_> = divided.iter().map(|run| (run.divided.unwrap(), run.workers)).collect();
            assert_eq!(found, STATES.map(|state| (state, 3)));
            assert_ne!(divided[0].transport, divided[1].transport);
            assert_eq!(others, runs(&[], extent));
        }
        assert!(!runs(&STATES, Extent::Brief).iter().any(|run| run.divided.is_some()));
    }

    #[test]
    fn one_run_of_a_job_that_can_recomputes_activations_and_one_has_its_state_in_a_file() {
        let axes = |extent| Axes { extent, ..axes(&[2, 3], false) };
        type Switch = (fn(Axes) -> Axes, fn(&Run) -> bool);
        let with: [Switch; 2] = [
            (|axes| Axes { recomputes: true, ..axes }, |run| run.recomputed),
            (|axes| Axes { offloads: true, ..axes }, |run| run.offloaded),
        ];
        for (can, does) in with {
            for extent in [Extent::Selection, Extent::Full] {
                let (own, others): (Vec<Run>, Vec<Run>) =
                    plan(&can(axes(extent))).unwrap().into_iter().partition(does);
                assert_eq!(own.iter().map(|run| run.workers).collect::<Vec<_>>(), [3]);
                assert_eq!(others, plan(&axes(extent)).unwrap());
            }
            assert!(!plan(&can(axes(Extent::Brief))).unwrap().iter().any(does));
        }
    }

    #[test]
    fn one_run_for_each_number_of_workers_is_resumed() {
        for (steps, cut) in [(2, 1), (3, 1), (30, 15)] {
            let runs = plan(&Axes { steps, ..axes(&[2, 3], false) }).unwrap();
            let resumed: Vec<&Run> = runs.iter().filter(|run| run.resumed_after.is_some()).collect();
            assert_eq!(resumed.iter().map(|run| run.workers).collect::<Vec<_>>(), [1, 2, 3]);
            for run in resumed {
                assert_eq!(run.resumed_after, Some(cut));
                let uncut = Run { resumed_after: None, ..run.clone() };
                assert!(runs.contains(&uncut), "its difference is that of the cut: {run:?}");
            }
        }
        assert!(plan(&axes(&[2], false)).unwrap().iter().all(|run| run.resumed_after.is_none()));
    }

    #[test]
    fn wishes_are_kept_and_nonsense_is_refused() {
        let wish =
            Axes { algorithm: Some("ring".into()), transport: Some("tcp".into()), ..axes(&[3], false) };
        for run in plan(&wish).unwrap().iter().filter(|run| run.workers > 1) {
            assert_eq!((run.transport.as_deref(), run.algorithm.as_deref()), (Some("tcp"), Some("ring")));
        }
        assert!(plan(&axes(&[2, 0], false)).is_err());
        assert!(plan(&Axes { caps: vec![25.0, -1.0], ..axes(&[2], false) }).is_err());
        assert!(keeps_tree("direct") && keeps_tree("halving-doubling") && !keeps_tree("ring"));
    }
}
