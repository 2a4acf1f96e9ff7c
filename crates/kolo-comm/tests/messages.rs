//! Messages with tags, beside the collectives of a group.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kolo_comm::{Error, Op, Rank, interruptible, threads};

#[test]
fn messages_are_matched_by_sender_and_tag_in_the_order_of_their_sends() {
    let world = 3;
    threads::spawn(world, |group| {
        let messages = group.messages().unwrap();
        let rank = group.rank().0;
        let (next, before) = (Rank((rank + 1) % world), Rank((rank + 2) % world));
        for number in 0..20u8 {
            messages.send(&[rank as u8, number], next, u64::from(number % 2)).unwrap();
        }
        // A collective has its place whatever messages are under way.
        let mut sum = [1.0f32];
        group.all_reduce(&mut sum, Op::Sum).unwrap();
        assert_eq!(sum, [3.0]);
        // Odd tags first, though even ones were sent before.
        for tag in [1, 0] {
            for turn in 0..10 {
                let (from, bytes) = messages.receive(Some(before), tag).unwrap().wait().unwrap();
                assert_eq!((from, bytes), (before, vec![before.0 as u8, 2 * turn + tag as u8]));
            }
        }
        // Requests are answered in their order, also those that came before the message.
        let (mut first, mut second) =
            (messages.receive(None, 9).unwrap(), messages.receive(Some(before), 9).unwrap());
        assert!(first.wait_for(Duration::from_millis(1)).unwrap().is_none());
        group.barrier().unwrap();
        messages.send(&[1; 100_000], next, 9).unwrap();
        messages.send(&[], next, 9).unwrap();
        assert_eq!(first.wait_for(Duration::from_secs(60)).unwrap(), Some((before, vec![1; 100_000])));
        assert_eq!(second.wait_for(Duration::from_secs(60)).unwrap(), Some((before, vec![])));
        group.barrier().unwrap();
        let unknown = messages.send(&[], Rank(3), 0).unwrap_err();
        assert!(unknown.is_refusal(), "{unknown}");
    })
    .unwrap();
}

#[test]
fn a_message_is_taken_when_it_arrives() {
    threads::spawn(2, |group| {
        let messages = group.messages().unwrap();
        let other = Rank(1 - group.rank().0);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let by = |number| {
            let taken = taken.clone();
            move |bytes: &[u8]| taken.lock().unwrap().push((number, bytes.len()))
        };
        messages.send(&[7; 9], other, 1).unwrap();
        // It is there before anybody asks for it, or arrives later.
        if group.rank() == Rank(0) {
            group.barrier().unwrap();
        }
        let asked = messages.receive_by(Some(other), 1, by(1)).unwrap();
        if group.rank() == Rank(1) {
            group.barrier().unwrap();
        }
        let mut next = messages.receive_by(None, 2, by(2)).unwrap();
        let last = messages.receive(Some(other), 2).unwrap();
        assert_eq!(asked.wait().unwrap(), (other, Vec::new()));
        assert!(next.wait_for(Duration::from_millis(1)).unwrap().is_none());
        group.barrier().unwrap();
        messages.send(&[], other, 2).unwrap();
        messages.send(&[1, 2], other, 2).unwrap();
        assert_eq!(last.wait().unwrap(), (other, vec![1, 2]), "taken once");
        assert_eq!(next.wait().unwrap(), (other, Vec::new()));
        assert_eq!(*taken.lock().unwrap(), [(1, 9), (2, 0)]);
        group.barrier().unwrap();
    })
    .unwrap();
}

#[test]
fn a_receiver_learns_that_the_sender_gave_up_or_left() {
    for leaves in [true, false] {
        threads::spawn(2, |group| {
            let messages = group.messages().unwrap();
            if group.rank() == Rank(1) {
                if !leaves {
                    group.abandon("a test");
                }
                return;
            }
            let error = messages.receive(Some(Rank(1)), 0).unwrap().wait().unwrap_err();
            assert_eq!(error.culprit(), Some(Rank(1)), "{error}");
            assert_eq!(matches!(error, Error::Left { .. }), leaves, "{error}");
        })
        .unwrap();
    }
}

#[test]
fn an_interrupted_collective_ends_for_all_ranks() {
    let errors = threads::spawn(2, |group| {
        if group.rank() == Rank(0) {
            return interruptible(|| true, || group.barrier()).unwrap_err();
        }
        std::thread::sleep(Duration::from_millis(300));
        group.barrier().unwrap_err()
    });
    for error in errors.unwrap() {
        assert_eq!(error.to_string(), "rank 0 gave up: interrupted in barrier (call 0)");
    }
}
