//! Messages with tags, beside the collectives of a group.

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
