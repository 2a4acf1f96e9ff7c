//! One step, as a state machine: `Collecting(shard i) → Reducing → Applying(bucket by bucket) → Idle`.
//!
//! **The way there.** The thread that runs a backward pass calls [`Step::add`] for every computed gradient,
//! which copies it into its place in a bucket. In the last of this rank's shards a bucket whose contributions
//! are complete goes to the group's communication thread, which reduces it while the backward pass continues.
//! All ranks start the same collectives in the same order ([`launch_order`]), independent of their passes:
//! the loss first, so that the divisor is known, then the buckets and the agreement. Buckets whose sums are
//! deferred ([`Reduction::is_deferred`](kolo_reduction::reduction::Reduction)) stay until the last pass is
//! over; then the training thread itself announces all of them at once.
//!
//! **The way back.** The end of a reduction calls nothing. Its buffer waits in the bucket until the *training
//! thread* needs a value: the next forward pass requests a parameter (`Replica::latest`), waits for that
//! parameter's buckets only ([`Step::collect`]), runs the optimizer on them in place, and marks them
//! ([`Step::applied`]). Buckets that are not requested before the next backward pass or `Replica::step`
//! begins are applied then, in the order of launches. The last bucket that is applied ends the step
//! ([`Step::prepare_next`]).
//!
//! | phase | entered by | thread | then |
//! |---|---|---|---|
//! | `Idle` | [`Step::prepare_next`] | training | shards may move ([`Step::rebalance`]) |
//! | `Collecting` | [`Step::begin_shard`], each shard | backward pass | [`Step::add`], [`Step::end_shard`] |
//! | `Reducing` | [`Step::start_rest`] | training, in `Replica::step` | all is started; [`Step::agree`] |
//! | `Applying` | [`Step::begin_applying`] | training | [`Step::collect`], [`Step::applied`] |
//! | `GivenUp` | [`Step::give_up`] | training, after a death | another group has another [`Step`] |
//!
//! Two of these take turns if updates are one step late (kolo-sync): one is in `Reducing` while the other
//! collects the gradients of the next step.
//!
//! Observers of steps (membership, stragglers) send their messages with the agreement, as a
//! [`ObserverMessage`], of which the step knows only the size.

mod accessors;
mod agreement;
mod applying;
mod bucket_state;
mod buckets;
mod collecting;
mod finiteness;
mod gathering;
mod in_flight;
mod late_gradients;
mod launch_order;
mod not_finite;
mod observer_messages;
mod owned_bucket;
mod owned_sum;
mod parts;
mod profile;
mod reconfiguration;
mod reducing;
mod rollback;
mod scaled_steps;
mod shard_squares;
mod unscaling;
mod use_counts;
mod wire_time;

use std::sync::Arc;

use kolo_comm::Group;
use kolo_comm::schedule::words::counted;

use self::agreement::Agreement;
pub use self::bucket_state::BucketTiming;
use self::buckets::Buckets;
pub use self::finiteness::SumSeen;
use self::finiteness::{Limits, Watch};
pub use self::in_flight::{DIVIDED_BUCKET_MIB, IN_FLIGHT};
use self::launch_order::LaunchOrder;
pub use self::observer_messages::{FLAGS, ObserverMessage, Received};
pub use self::parts::Spent;
use self::parts::{Cuts, Incoming, Options, Pass, Ranks, Times};
use self::profile::Profile;
pub use self::reducing::Totals;
use self::shard_squares::ShardSquares;
pub use self::unscaling::StepNumber;
use self::unscaling::Unscaling;
use self::use_counts::UseCounts;
use crate::division::Division;
use crate::last_step::LastStep;
use crate::losses::ShardLosses;
use kolo_optim::Layout;
use kolo_reduction::Error;
use kolo_reduction::reduction::Reducer;
use kolo_reduction::{BucketCaps, plan, reversed};
use kolo_sampler::Assignment;

/// Phase of a step. A call in the wrong phase is refused.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No step runs.
    Idle,
    /// The passes of this rank's first `done` shards are over; `pass` is the number of the running one.
    Collecting { done: usize, pass: Option<u64> },
    /// All passes are over, and all collectives are started. A step that fails here stays here: its
    /// gradients are lost.
    Reducing,
    /// Gradients change values: `left` buckets are still to be applied of the step that ends as `ends`.
    Applying { left: usize, ends: LastStep },
    /// The step has failed, and the updates it had applied have been undone.
    GivenUp,
}

/// The steps of one rank of a group, one after another; the replica holds all that survives a change of the
/// group.
pub struct Step {
    layout: Arc<Layout>,
    ranks: Ranks,
    reducer: Arc<dyn Reducer>,
    cuts: Cuts,
    options: Options,
    phase: Phase,
    pass: Pass,
    buckets: Buckets,
    launches: LaunchOrder,
    losses: ShardLosses,
    uses: UseCounts,
    incoming: Incoming,
    agreement: Agreement,
    profile: Profile,
    times: Times,
}

kolo_comm::opaque_debug!(Step);

impl Step {
    /// Prepares the steps of one rank of `group`. `shares` (shards of each rank) and `servers` (true for
    /// summation servers) are the same on all ranks, and so is the `division` of the work among owners;
    /// `None` if each rank steps all of flat memory. A division of gradients sums them exactly, without
    /// `reducer`.
    ///
    /// # Errors
    ///
    /// The number of shares is not that of the ranks, all are 0, or out of memory.
    pub fn new(
        group: Arc<Group>,
        layout: Arc<Layout>,
        shares: &[usize],
        servers: Arc<[bool]>,
        reducer: Arc<dyn Reducer>,
        caps: BucketCaps,
        division: Option<Division>,
    ) -> Result<Self, Error> {
        if shares.len() != group.world_size() {
            let (given, ranks) = (counted(shares.len(), "share"), counted(group.world_size(), "rank"));
            return Err(Error::Setting(format!("{given} for {ranks}; give one for each")));
        }
        if shares.iter().all(|share| *share == 0) {
            return Err(Error::Setting("shards is 0; a step needs at least 1".into()));
        }
        let assignment = Assignment::new(shares, group.rank()).with_servers(&servers);
        let order = reversed(&layout);
        let owns_whole = division.as_ref().is_some_and(|division| division.owners.own_whole_tensors());
        let whole = reducer.needs_whole_tensors() || owns_whole;
        let plan = plan(&layout, &order, caps, whole);
        let buckets = Buckets::new(plan, &*reducer, &layout, &group, &assignment, division.as_ref())?;
        let limits = Limits::new(&*reducer, shares.iter().sum());
        let incoming =
            Incoming { unscaling: Unscaling::default(), watch: Watch::default(), limits, squares: None };
        Ok(Step {
            launches: LaunchOrder::new(launch_order::by_readiness(buckets.states.len())),
            uses: UseCounts::new(layout.spans().len()),
            profile: Profile::new(layout.spans().len()),
            layout,
            ranks: Ranks { group, servers, assignment, division },
            reducer,
            cuts: Cuts { caps, slice: caps.other, whole, order },
            options: Options::default(),
            phase: Phase::Idle,
            pass: Pass::default(),
            buckets,
            losses: ShardLosses::default(),
            incoming,
            agreement: Agreement::default(),
            times: Times::default(),
        })
    }

    /// Size limits of the buckets.
    pub fn caps(&self) -> BucketCaps {
        self.cuts.caps
    }

    /// Enables the measurement of the squared norm of each shard's gradient, which all ranks receive. To be
    /// called before the first step.
    pub fn measure_shards(&mut self) {
        self.incoming.squares = Some(ShardSquares::new(&self.layout));
    }

    /// Enables or disables synchronization. Without it, steps use this rank's own gradients only, and the
    /// ranks' weights diverge.
    pub fn synchronize(&mut self, synchronize: bool) {
        self.options.synchronize = synchronize;
    }

    /// Permits steps without any sample: they change nothing and are not errors.
    pub fn allow_no_samples(&mut self) {
        self.options.may_be_empty = true;
    }

    /// Returns true if the passes of all of this rank's shards are over in the current step.
    pub fn has_all_passes(&self) -> bool {
        matches!(self.phase, Phase::Collecting { done, pass: None } if done == self.shards().len())
    }

    /// Expected number of uses of each span in the current or the next step.
    pub fn expected_uses(&self) -> &[u32] {
        &self.uses.expected
    }

    /// Sets the expected number of uses of each span, before the first step.
    pub fn expect_uses(&mut self, expected: Vec<u32>) {
        self.uses.expected = expected;
    }

    /// Expects as many uses of each span as any step has had: for jobs whose steps use different spans in
    /// turn, so that no gradient waits for the end of the passes.
    pub fn expect_most_uses(&mut self) {
        self.uses.expects_most = true;
    }

    /// Continues from `last`, the step of the previous group, with the expected number of uses of each span.
    /// To be called before the first step of a group.
    pub fn follow(&mut self, last: &Step, expected: Vec<u32>) {
        self.uses.expected = expected;
        // So that a pass of the previous group that is still held is not mistaken for one of this group.
        self.pass.number = last.pass.number;
        self.options.may_be_empty = last.options.may_be_empty;
    }

    /// Makes the numbers of later passes differ from those of `other`.
    pub fn count_passes_after(&mut self, other: &Step) {
        self.pass.number = self.pass.number.max(other.pass.number);
    }

    /// Takes the place of `other`, with which it takes turns: continues its numbers of passes, and its times
    /// of waiting and of reductions.
    pub fn take_turn(&mut self, other: &mut Step) {
        self.pass.number = self.pass.number.max(other.pass.number);
        self.times.exposed += other.take_exposed();
        self.times.wire.follow(&mut other.times.wire);
        let Spent { backward, optimizer } = other.take_spent();
        self.times.spent.backward += backward;
        self.times.spent.optimizer += optimizer;
    }
}
