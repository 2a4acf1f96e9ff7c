//! Loom goes through the orders in which two ranks can meet at a lane and a bell: no message is lost, doubled
//! or seen by halves, no memory is used again while it is read, and nobody sleeps for ever.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::time::Duration;

use crate::lane::{Bell, Lane, write_within};
use crate::sync::SLOTS;

/// A lane, with the bells of both ends, and a block of the sender's memory.
#[derive(Default)]
struct Pair {
    lane: Lane,
    sender: Bell,
    receiver: Bell,
    block: UnsafeCell<u64>,
}

/// Waits as `Mailbox::wait_until` does, without its spin.
fn wait(bell: &Bell, ready: impl Fn() -> bool) {
    loop {
        let rings = bell.about_to_sleep();
        if ready() {
            break;
        }
        bell.sleep(rings, Duration::ZERO);
    }
    bell.awake();
}

/// Explores all orders with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn messages_come_in_order_and_whole_and_a_full_lane_waits() {
    const MESSAGES: u32 = SLOTS as u32 + 1;
    explore(3, || {
        let pair = Arc::new(Pair::default());
        let at_sender = pair.clone();
        let sender = thread::spawn(move || {
            let Pair { lane, sender, receiver, .. } = &*at_sender;
            for number in 0..MESSAGES {
                wait(sender, || number - lane.taken() < SLOTS as u32);
                let slot = lane.slot(number);
                write_within(slot, &u64::from(number + 7).to_ne_bytes());
                slot.bytes.store(8, Ordering::Relaxed);
                lane.post(number, receiver);
            }
        });
        let Pair { lane, sender: bell, receiver, .. } = &*pair;
        for number in 0..MESSAGES {
            wait(receiver, || lane.has(number));
            let slot = lane.slot(number);
            assert_eq!(slot.within[0].load(Ordering::Relaxed), u64::from(number + 7));
            assert_eq!(slot.bytes.load(Ordering::Relaxed), 8);
            lane.take(number + 1, bell);
        }
        sender.join().unwrap();
    });
}

#[test]
fn memory_is_used_again_only_when_it_has_been_read() {
    explore(3, || {
        let pair = Arc::new(Pair::default());
        let at_sender = pair.clone();
        let sender = thread::spawn(move || {
            let Pair { lane, sender, receiver, block } = &*at_sender;
            for number in 0..2 {
                // SAFETY: loom fails if somebody else reads or writes it meanwhile.
                block.with_mut(|block| unsafe { *block = u64::from(number) + 7 });
                lane.post(number, receiver);
                wait(sender, || lane.taken() == number + 1);
            }
        });
        let Pair { lane, sender: bell, receiver, block } = &*pair;
        for number in 0..2 {
            wait(receiver, || lane.has(number));
            // SAFETY: as above.
            assert_eq!(block.with(|block| unsafe { *block }), u64::from(number) + 7);
            lane.take(number + 1, bell);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_failure_wakes_who_sleeps() {
    explore(4, || {
        let pair = Arc::new(Pair::default());
        let failed = Arc::new(AtomicBool::new(false));
        let (rung, told) = (pair.clone(), failed.clone());
        // As `Liveness::fail` does, on whatever thread.
        let failing = thread::spawn(move || {
            told.store(true, Ordering::SeqCst);
            rung.receiver.ring();
        });
        wait(&pair.receiver, || failed.load(Ordering::SeqCst));
        failing.join().unwrap();
    });
}
