//! Two ranks that read each other's gradients in place: nothing is reduced, and the bits are the same.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{WIDTH, bits, clip, lively, replica, run_shard};
use kolo_comm::{Deferred, Group, SumParts, Timing, threads};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Scope, Settings};
use kolo_ddp::reduction::{self, Context, FinishedShard, ReadyStep, Reducer, Reduction};
use kolo_ddp::table::Choice;
use kolo_ddp::{Assignment, BucketCaps, Config, Error};

const STEPS: usize = 12;
/// Steps in which buckets get their order.
const PROFILED: usize = 6;

/// Numbers of calls on the sums of all buckets.
#[derive(Default)]
struct Calls {
    results: AtomicUsize,
    pieces: AtomicUsize,
    announced: AtomicUsize,
    deferred: AtomicUsize,
}

/// The sum, whose calls are counted.
struct CountedSum(Arc<dyn Reducer>, Arc<Calls>);

impl Reducer for CountedSum {
    fn is_sum(&self) -> bool {
        true
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        Ok(Box::new(CountedBucket(self.0.build(context)?, self.1.clone())))
    }
}

struct CountedBucket(Box<dyn Reduction>, Arc<Calls>);

impl Reduction for CountedBucket {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        self.0.add(offset, gradient, first);
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.0.add_nothing(offset, len);
    }

    fn end_shard(&mut self, shard: FinishedShard) {
        self.0.end_shard(shard);
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        self.0.start(group, assignment, step);
    }

    fn is_deferred(&self) -> bool {
        self.0.is_deferred()
    }

    fn defer(&mut self, assignment: &Assignment) -> Option<SumParts<f32>> {
        let parts = self.0.defer(assignment);
        self.1.deferred.fetch_add(usize::from(parts.is_some()), Ordering::Relaxed);
        parts
    }

    fn deferred(&mut self, sum: Deferred<f32>, announced: Timing) {
        self.0.deferred(sum, announced);
    }

    fn is_over(&mut self) -> bool {
        self.0.is_over()
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.0.wait()
    }

    fn result(&mut self) -> &mut [f32] {
        self.1.results.fetch_add(1, Ordering::Relaxed);
        self.0.result()
    }

    fn read_once<'a>(&'a mut self, elements: Range<usize>, room: &'a mut [f32]) -> &'a [f32] {
        self.1.pieces.fetch_add(1, Ordering::Relaxed);
        self.0.read_once(elements, room)
    }

    fn will_be_read_once(&mut self) {
        self.1.announced.fetch_add(1, Ordering::Relaxed);
        // In the first step some parameters are used more often than expected; that is added to results.
        self.1.results.store(0, Ordering::Relaxed);
        self.0.will_be_read_once();
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Returns the bits of the values after all steps, and the calls on this rank.
fn train(group: Group, optimizer: &str, transforms: Vec<Choice>) -> (Vec<u32>, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let sum = reduction::named("sum", &Settings::default()).unwrap();
    let config = Config {
        shards: Some(4),
        caps: Some(BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH }),
        transforms,
        reduction: Arc::new(CountedSum(sum, calls.clone())),
        verify_every: 3,
        ..Config::default()
    };
    let settings = lively(optimizer::find(optimizer).unwrap());
    let mut replica = replica(Arc::new(group), &config, optimizer, settings);
    for step in 0..STEPS {
        for shard in replica.shards() {
            run_shard(&mut replica, &[4 * step + shard]);
        }
        let before = calls.deferred.load(Ordering::Relaxed);
        let report = replica.step(0.05).unwrap();
        let deferred = calls.deferred.load(Ordering::Relaxed) - before;
        assert!(
            deferred == 0 || (deferred == report.traffic.buckets.len() && report.traffic.started_early == 0),
            "all at the end"
        );
    }
    (bits(&mut replica), calls)
}

#[test]
fn two_ranks_add_when_the_optimizer_reads_in_the_bits_of_one() {
    for entry in OPTIMIZERS {
        let (expected, _) = train(Group::alone(), entry.name, Vec::new());
        let by_element = entry.build(&lively(entry)).unwrap().scope() == Scope::Element;
        for (world, transforms) in [(2, Vec::new()), (2, clip(1e9)), (3, Vec::new())] {
            let clips = !transforms.is_empty();
            let run = |group| train(group, entry.name, transforms.clone());
            for (bits, calls) in threads::spawn(world, run).unwrap() {
                let case = format!("{}, {world} ranks, clips: {clips}", entry.name);
                assert!(bits == expected, "{case}");
                assert_eq!(calls.announced.load(Ordering::Relaxed) > 0, by_element && !clips, "{case}");
                let defers = by_element && !clips && world == 2;
                assert_eq!(calls.deferred.load(Ordering::Relaxed) >= STEPS - PROFILED, defers, "{case}");
                assert_eq!(calls.pieces.load(Ordering::Relaxed) >= STEPS - PROFILED, by_element, "{case}");
                assert!(clips || !by_element || calls.results.load(Ordering::Relaxed) == 0, "{case}");
            }
        }
    }
}
