use super::*;

const RULES: Rules = Rules {
    min: 2,
    start: Duration::from_secs(100),
    patience: Duration::from_secs(10),
    wait: Duration::from_secs(50),
};

/// A roster of `count` members that all sit in generation 1.
fn seated(count: usize, now: Instant) -> Roster {
    let mut roster = Roster::new(RULES, now);
    (0..count).for_each(|n| roster.expect(&n.to_string()));
    for n in 0..count {
        assert_eq!(roster.decide(now), Verdict::Wait);
        roster.arrive(&n.to_string(), 1, None, now);
    }
    assert!(matches!(roster.decide(now), Verdict::Form { .. }));
    assert_eq!(roster.decide(now), Verdict::Wait);
    roster
}

fn form(members: &[(&str, u64)], reason: &str) -> Verdict {
    let guest = |&(member, arrival): &(&str, u64)| Guest { member: member.into(), arrival };
    Verdict::Form { guests: members.iter().map(guest).collect(), reason: reason.into() }
}

#[test]
fn the_first_generation_waits_for_all_that_were_started() {
    let now = Instant::now();
    let mut roster = Roster::new(RULES, now);
    ["a", "b", "c"].iter().for_each(|member| roster.expect(member));
    roster.arrive("b", 1, None, now);
    roster.arrive("c", 1, None, now);
    assert_eq!(roster.decide(now), Verdict::Wait);
    assert!(matches!(roster.decide(now + RULES.start), Verdict::Form { guests, .. } if guests.len() == 2));

    let mut roster = Roster::new(RULES, now);
    ["a", "b"].iter().for_each(|member| roster.expect(member));
    roster.arrive("b", 1, None, now);
    assert!(matches!(roster.decide(now + RULES.start), Verdict::Refuse { .. }));
}

#[test]
fn after_a_death_the_others_go_on_as_soon_as_they_are_back() {
    let now = Instant::now();
    let mut roster = seated(4, now);
    assert_eq!(roster.gone("1", Some("was killed"), now), Some(1));
    roster.arrive("3", 2, Some("rank 1 died".into()), now);
    roster.arrive("0", 2, None, now);
    assert_eq!(roster.decide(now), Verdict::Wait, "2 is not back");
    roster.arrive("2", 2, None, now);
    assert_eq!(roster.decide(now), form(&[("0", 2), ("2", 2), ("3", 2)], "rank 1 (1) was killed"));
    assert_eq!(roster.generation(), 2);
}

#[test]
fn whoever_comes_is_let_in_at_the_end_of_a_step() {
    let now = Instant::now();
    let mut roster = seated(2, now);
    roster.expect("new");
    assert_eq!(roster.decide(now), Verdict::Wait);
    roster.arrive("new", 1, None, now);
    assert_eq!(roster.decide(now), Verdict::Change);
    assert_eq!(roster.decide(now), Verdict::Wait, "they are asked once");
    roster.arrive("1", 2, None, now);
    roster.arrive("0", 2, None, now);
    assert_eq!(roster.decide(now), form(&[("0", 2), ("1", 2), ("new", 1)], "members come or go"));
}

#[test]
fn whoever_does_not_come_back_is_hung() {
    let now = Instant::now();
    let mut roster = seated(3, now);
    roster.arrive("0", 2, Some("rank 2 did not take part".into()), now);
    roster.arrive("1", 2, None, now);
    assert_eq!(roster.decide(now + RULES.patience / 2), Verdict::Wait);
    assert_eq!(roster.decide(now + RULES.patience), Verdict::Evict(vec!["2".into()]));
    let next = roster.decide(now + RULES.patience);
    assert_eq!(next, form(&[("0", 2), ("1", 2)], "rank 2 did not take part"));
    // Its process ends later.
    assert_eq!(roster.gone("2", Some("was killed"), now), None);
}

#[test]
fn one_that_works_is_waited_for_longer() {
    let (now, seconds) = (Instant::now(), Duration::from_secs);
    let mut roster = seated(3, now);
    roster.arrive("0", 2, Some("rank 1 did not take part".into()), now);
    // A second of work in each second, and the little that a process takes which only waits.
    for second in 0..=20 {
        roster.worked("1", seconds(second), now + seconds(second));
        roster.worked("2", Duration::from_millis(second), now + seconds(second));
    }
    assert_eq!(roster.decide(now + seconds(20)), Verdict::Evict(vec!["2".into()]));
    assert_eq!(roster.decide(now + seconds(20)), Verdict::Wait);
    assert_eq!(roster.decide(now + seconds(26)), Verdict::Evict(vec!["1".into()]), "it works no more");

    let mut roster = seated(3, now);
    roster.arrive("0", 2, Some("rank 1 did not take part".into()), now);
    roster.arrive("2", 2, None, now);
    roster.worked("1", seconds(1), now + 10 * RULES.patience);
    assert_eq!(roster.decide(now + 10 * RULES.patience), Verdict::Evict(vec!["1".into()]));
}

#[test]
fn those_who_are_back_know_how_long_to_wait() {
    let now = Instant::now();
    for (told, wait) in [([2, 3], 3), ([1, 30], 30)] {
        let mut roster = seated(3, now);
        for (member, seconds) in ["0", "1"].into_iter().zip(told) {
            roster.arrive(member, 2, Some("rank 2 did not take part".into()), now);
            roster.told(Duration::from_secs(seconds));
        }
        assert_eq!(roster.decide(now + Duration::from_secs(wait) / 2), Verdict::Wait);
        assert_eq!(roster.decide(now + Duration::from_secs(wait)), Verdict::Evict(vec!["2".into()]));
        // The next generation's members have not said anything yet.
        assert!(matches!(roster.decide(now), Verdict::Form { .. }));
        roster.arrive("0", 3, Some("rank 1 did not take part".into()), now);
        assert_eq!(roster.decide(now + RULES.patience / 2), Verdict::Wait);
        assert_eq!(roster.decide(now + RULES.patience), Verdict::Evict(vec!["1".into()]));
    }
}

#[test]
fn too_few_wait_and_then_give_up() {
    let now = Instant::now();
    let mut roster = seated(2, now);
    roster.gone("0", Some("was killed"), now);
    roster.arrive("1", 2, None, now);
    assert_eq!(roster.decide(now + RULES.wait / 2), Verdict::Wait);
    let mut waited = roster;
    let refused = waited.decide(now + RULES.wait);
    let guests = vec![Guest { member: "1".into(), arrival: 2 }];
    assert_eq!(refused, Verdict::Refuse { guests, waited: RULES.wait });

    // Nobody else will come, once the one that is on its way has ended.
    let mut roster = seated(2, now);
    roster.expect("new");
    roster.gone("0", Some("was killed"), now);
    roster.close();
    assert_eq!(roster.decide(now), Verdict::Wait);
    roster.arrive("1", 2, None, now);
    assert_eq!(roster.decide(now), Verdict::Wait);
    roster.gone("new", Some("was killed"), now);
    let guests = vec![Guest { member: "1".into(), arrival: 2 }];
    assert_eq!(roster.decide(now), Verdict::Refuse { guests, waited: Duration::ZERO });

    // A replacement in time.
    let mut roster = seated(2, now);
    roster.gone("0", Some("was killed"), now);
    roster.arrive("1", 2, None, now);
    assert_eq!(roster.decide(now), Verdict::Wait);
    roster.arrive("new", 1, None, now);
    assert_eq!(roster.decide(now), form(&[("1", 2), ("new", 1)], "rank 0 (0) was killed"));
}

#[test]
fn ending_well_ends_no_generation() {
    let now = Instant::now();
    let mut roster = seated(3, now);
    assert_eq!(roster.gone("0", None, now), Some(0));
    assert_eq!(roster.decide(now), Verdict::Wait);
    // The others may still lose each other.
    roster.arrive("1", 2, Some("rank 2 died".into()), now);
    roster.arrive("2", 2, None, now);
    assert!(matches!(roster.decide(now), Verdict::Form { guests, .. } if guests.len() == 2));
}

#[test]
fn newcomers_do_not_begin_anew_what_others_have_lost() {
    let now = Instant::now();
    let mut roster = seated(2, now);
    roster.expect("new");
    roster.arrive("new", 1, None, now);
    roster.gone("0", Some("was killed"), now);
    roster.gone("1", Some("was killed"), now);
    assert_eq!(roster.decide(now), Verdict::Orphan(vec![Guest { member: "new".into(), arrival: 1 }]));
    assert!(!roster.is_over());
}

#[test]
fn a_newcomer_may_be_too_late() {
    let now = Instant::now();
    let mut roster = seated(2, now);
    roster.expect("new");
    assert_eq!(roster.gone("0", None, now), Some(0));
    assert!(!roster.is_over(), "1 is at work");
    assert_eq!(roster.gone("1", None, now), Some(1));
    assert!(roster.is_over());
    roster.arrive("new", 1, None, now);
    assert!(matches!(roster.decide(now), Verdict::Orphan(..)));
    assert_eq!(roster.gone("new", Some("failed"), now), None);
    assert!(roster.is_over());
}

#[test]
fn another_coordinator_goes_on_where_the_last_one_ended() {
    let now = Instant::now();
    let members = ["0", "1", "2"].map(String::from);
    let mut roster = Roster::resume(RULES, 4, &members, "the leader has ended", now);
    // Those of the leader end with it; the others know nothing of each other yet.
    roster.gone("0", Some("was lost"), now);
    roster.arrive("2", 5, Some("rank 0 died".into()), now);
    assert_eq!(roster.decide(now), Verdict::Wait, "1 is not back");
    roster.arrive("1", 5, None, now);
    assert_eq!(roster.decide(now), form(&[("1", 5), ("2", 5)], "the leader has ended"));
    assert_eq!(roster.generation(), 5);

    // Before the first generation nothing is lost.
    let mut roster = Roster::resume(RULES, 0, &[], "the leader has ended", now);
    roster.expect("1");
    roster.arrive("1", 1, None, now);
    roster.arrive("2", 1, None, now);
    assert_eq!(roster.decide(now), form(&[("1", 1), ("2", 1)], "the job begins"));
}

#[test]
fn a_later_generation_that_others_know_of_counts() {
    let now = Instant::now();
    let mut roster = Roster::resume(RULES, 4, &["0", "1"].map(String::from), "", now);
    roster.catch_up(6);
    roster.catch_up(5);
    roster.arrive("0", 2, None, now);
    roster.arrive("1", 2, None, now);
    assert!(matches!(roster.decide(now), Verdict::Form { .. }));
    assert_eq!(roster.generation(), 7);
}

#[test]
fn a_seat_is_not_the_state() {
    let now = Instant::now();
    let mut roster = seated(2, now);
    roster.arrive("new", 1, None, now);
    assert_eq!(roster.decide(now), Verdict::Change);
    for member in ["0", "1"] {
        roster.arrive(member, 2, None, now);
        roster.settled(member);
    }
    assert_eq!(roster.decide(now), form(&[("0", 2), ("1", 2), ("new", 1)], "members come or go"));
    // Before the new one has got anything.
    roster.gone("0", Some("was killed"), now);
    roster.gone("1", Some("was killed"), now);
    roster.arrive("new", 2, Some("rank 0 was killed".into()), now);
    assert_eq!(roster.decide(now), Verdict::Orphan(vec![Guest { member: "new".into(), arrival: 2 }]));

    // Nobody has had any in a generation that has not come about.
    let mut roster = seated(3, now);
    roster.gone("0", Some("was killed"), now);
    ["1", "2"].iter().for_each(|member| roster.arrive(member, 2, None, now));
    assert_eq!(roster.decide(now), form(&[("1", 2), ("2", 2)], "rank 0 (0) was killed"));
}
