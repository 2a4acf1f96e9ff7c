//! A bucket whose reduction fails when others are over already: no half step is visible, and its repetition
//! yields the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{NAMES, WIDTH, bits, bits_of, replica, run_shard};
use kolo_comm::{Group, Timing};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::reduction::{self, Context, FinishedShard, ReadyStep, Reducer, Reduction};
use kolo_ddp::{Assignment, BucketCaps, Config, Error, SpanId};

const STEPS: u64 = 10;
/// A step after which the order of buckets is final.
const FAILS_AT: u64 = 7;

/// The sum, but the bucket of one tensor fails once when it is armed.
struct FailingSum {
    sum: Arc<dyn Reducer>,
    fails: SpanId,
    is_armed: Arc<AtomicBool>,
}

impl Reducer for FailingSum {
    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let sum = self.sum.build(context)?;
        if context.bucket.slices.iter().all(|slice| slice.span != self.fails) {
            return Ok(sum);
        }
        Ok(Box::new(FailingBucket { sum, is_armed: self.is_armed.clone(), has_failed: false }))
    }
}

struct FailingBucket {
    sum: Box<dyn Reduction>,
    is_armed: Arc<AtomicBool>,
    has_failed: bool,
}

impl Reduction for FailingBucket {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        self.sum.add(offset, gradient, first);
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.sum.add_nothing(offset, len);
    }

    fn end_shard(&mut self, shard: FinishedShard) {
        self.sum.end_shard(shard);
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        self.sum.start(group, assignment, step);
    }

    fn is_over(&mut self) -> bool {
        self.sum.is_over()
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.has_failed |= self.is_armed.swap(false, Ordering::SeqCst);
        if self.has_failed { Err(Error::Lost) } else { self.sum.wait() }
    }

    fn result(&mut self) -> &mut [f32] {
        self.sum.result()
    }

    fn reset(&mut self) {
        self.has_failed = false;
        self.sum.reset();
    }
}

/// Trains an elastic job of one rank whose step fails at the bucket of that tensor, if any; the rank reads
/// all tensors then, and repeats the step.
fn train(optimizer: &str, fails: Option<SpanId>) -> Vec<u32> {
    let is_armed = Arc::new(AtomicBool::new(false));
    let sum = reduction::named("sum", &Settings::default()).unwrap();
    let reduction = FailingSum { sum, fails: fails.unwrap_or(SpanId(0)), is_armed: is_armed.clone() };
    let caps = Some(BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH });
    let config =
        Config { shards: Some(2), elastic: true, caps, reduction: Arc::new(reduction), ..Config::default() };
    let mut replica = replica(Arc::new(Group::alone()), &config, optimizer, Settings::default());
    let mut failed = 0;
    while replica.steps() < STEPS {
        let step = replica.steps();
        let before = bits(&mut replica);
        (0..2).for_each(|shard| run_shard(&mut replica, &[2 * step as usize + shard]));
        is_armed.store(fails.is_some() && failed == 0 && step == FAILS_AT, Ordering::SeqCst);
        if let Err(error) = replica.step(0.05) {
            assert!(matches!(error, Error::Lost), "{error}");
            failed += 1;
            let seen: Vec<u32> =
                (0..NAMES.len()).flat_map(|id| bits_of(replica.latest(SpanId(id)))).collect();
            assert!(seen == before, "{optimizer}, {fails:?}: values are those before the step");
            assert!(replica.values().is_err(), "the next call that can fail says why");
            replica.regroup(Arc::new(Group::alone())).unwrap();
            assert_eq!(replica.steps(), step);
        }
    }
    assert_eq!(failed, u64::from(fails.is_some()));
    bits(&mut replica)
}

#[test]
fn values_read_after_a_failed_step_do_not_change_the_bits() {
    for optimizer in ["sgd", "adamw", "lamb"] {
        let expected = train(optimizer, None);
        for span in (0..NAMES.len()).map(SpanId) {
            assert!(train(optimizer, Some(span)) == expected, "{optimizer}, {span:?}");
        }
    }
}
