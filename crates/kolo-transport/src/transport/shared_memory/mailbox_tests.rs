//! Tests of a mailbox without a group around it.

use super::*;
use crate::fingerprint::{Call, CollectiveKind, Fingerprint};
use crate::memory::Backing;
use crate::transport::connect_threads;
use crate::transport::interface::NoOthers;
use crate::wait::WaitMode;
use kolo_schedule::{DType, Op};

/// Wait context of rank `here` of two.
fn context(here: usize, liveness: &Liveness) -> WaitContext<'_> {
    let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
    let call =
        Fingerprint::new(&Call { kind, op, root: None, readers: None, dtype, elements: 3, algorithm: 0 });
    let timeout = std::time::Duration::from_secs(60);
    WaitContext::new(Rank(here), &[Rank(0), Rank(1)], call, WaitMode::Blocking, timeout, liveness)
}

#[test]
fn copies_of_an_ended_thread_stay_until_the_last_thread_has_ended() {
    let liveness = Liveness::new(2);
    let mut ends = connect_threads(2, &Pool::new(Backing::Heap), &liveness).unwrap();
    let (mut receiver, mut sender) = (ends.pop().unwrap(), ends.pop().unwrap());
    let sent = vec![7u8; 100_000];
    let segment = Segment { start: sent.as_ptr(), bytes: sent.len(), place: None, content: 1 };
    sender.send(Rank(1), segment, true, &context(0, &liveness), &mut NoOthers).unwrap();
    let wait = context(1, &liveness);
    let message = receiver.receive(Rank(0), sent.len(), &wait, &mut NoOthers).unwrap();
    // As after a failure: the sender ends while the receiver is still adding.
    drop(sender);
    // SAFETY: a message is readable until it is released.
    let message = unsafe { std::slice::from_raw_parts(message, sent.len()) };
    assert!(message.iter().all(|byte| *byte == 7));
    receiver.release(Rank(0));
}
