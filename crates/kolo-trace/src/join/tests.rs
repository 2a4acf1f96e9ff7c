use super::*;
use crate::part::{PartHeader, PartWriter};
use crate::span::{Bucket, Event};
use serde_json::Value;

const BUCKET: Bucket = Bucket { number: 2, bytes: 400, wire_bytes: 200 };

fn event(what: What, step: u64, start: u64, end: u64) -> Event {
    Event { what, step, start, end }
}

fn part(clock: &str, rank: usize, events: Vec<Event>) -> Part {
    let header = PartHeader { clock: clock.into(), host: format!("host-{clock}"), process: rank as u32 };
    let first = event(What::Rank { rank, world_size: 2, generation: 1 }, 0, events[0].start, events[0].start);
    Part { header, events: [vec![first], events].concat() }
}

/// Two ranks on hosts whose clocks differ by `ahead`; rank 1 starts 300 ns after rank 0, both end together.
fn two_hosts(ahead: u64) -> [Part; 2] {
    let steps = |of: u64| (0..20).map(move |step| 10_000 + 1000 * step + of);
    let own = steps(0).zip(0..).map(|(at, step)| event(What::Reduce(BUCKET), step, at, at + 500));
    let other =
        steps(300).zip(0..).map(|(at, step)| event(What::Reduce(BUCKET), step, at + ahead, at + 200 + ahead));
    [part("a", 0, own.collect()), part("b", 1, other.collect())]
}

#[test]
fn clocks_are_aligned_as_well_as_the_collectives_allow() {
    for ahead in [0, 7_000_000] {
        let parts = two_hosts(ahead);
        let clocks = clocks::find(&parts, &Collectives::of(&parts));
        let found = clocks["b"];
        let uncertainty = found.uncertainty.unwrap();
        assert!((found.ahead - ahead as i64).unsigned_abs() <= uncertainty, "{found:?}");
        assert_eq!(uncertainty, (500 + 200) / 2, "{found:?}");
        assert_eq!(clocks["a"], Clock { ahead: 0, uncertainty: Some(0) });
    }
}

#[test]
fn hosts_without_a_collective_in_common_begin_together() {
    let mut parts = two_hosts(5_000_000);
    parts[1].events.iter_mut().for_each(|event| event.step += 100);
    let clocks = clocks::find(&parts, &Collectives::of(&parts));
    assert_eq!(clocks["b"], Clock { ahead: 5_000_300, uncertainty: None });
}

#[test]
fn clocks_that_drift_apart_have_no_known_uncertainty() {
    let mut parts = two_hosts(0);
    // The last step's collective says that the other clock is 10 µs ahead, the others that it is not.
    let last = parts[1].events.last_mut().unwrap();
    (last.start, last.end) = (last.start + 10_000, last.end + 10_000);
    let clocks = clocks::find(&parts, &Collectives::of(&parts));
    assert!(clocks["b"].uncertainty.is_none() && (0..=10_000).contains(&clocks["b"].ahead), "{clocks:?}");
}

#[test]
fn the_last_to_start_is_waited_for() {
    let parts = two_hosts(0);
    let collectives = Collectives::of(&parts);
    let clocks = [("a".to_string(), Clock::default()), ("b".to_string(), Clock::default())];
    let waits = waits::waits(&collectives, &parts, &clocks.into());
    assert_eq!(waits.len(), 20, "only rank 0 waits");
    let expected = waits::WaitedFor { rank: 1, nanoseconds: 300 };
    assert!(waits.iter().all(|((part, _), waited)| *part == 0 && *waited == expected));
}

#[test]
fn a_timeline_is_made_of_parts_and_removes_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    check_free(&file).unwrap();
    let written = PartWriter::create(&parts_folder(&file)).and_then(|mut part| {
        part.write(&[
            event(What::Rank { rank: 3, world_size: 4, generation: 0 }, 0, 1000, 1000),
            event(What::Forward, 0, 2000, 5500),
            event(What::Ready(BUCKET), 0, 5000, 5000),
        ])
    });
    written.unwrap();
    assert!(matches!(check_free(&file), Err(Error::Exists { path }) if path == parts_folder(&file)));
    let joined = join(&file).unwrap();
    assert_eq!((joined.processes, joined.events), (1, 4 + 3));
    assert!(!parts_folder(&file).exists());
    assert!(matches!(check_free(&file), Err(Error::Exists { path }) if path == file));
    let trace: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    let forward = named("forward");
    assert_eq!((forward["ph"].as_str(), forward["ts"].as_f64()), (Some("X"), Some(1.0)));
    assert_eq!(forward["dur"].as_f64(), Some(3.5));
    let ready = named("bucket 2 ready");
    assert_eq!((ready["ph"].as_str(), ready["args"]["wire_bytes"].as_u64()), (Some("i"), Some(200)));
    assert!(named("process_name")["args"]["name"].as_str().unwrap().starts_with("rank 3 ("));
}

#[test]
fn a_partial_last_line_is_ignored_and_an_invalid_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    assert!(matches!(join(&file), Err(Error::NoParts { .. })));
    let parts = parts_folder(&file);
    let header = r#"{"clock":"c","host":"h","process":7}"#;
    let line = r#"{"what":"forward","step":1,"start":5,"end":6}"#;
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("h-7.jsonl"), format!("{header}\n{line}\n{}", &line[..20])).unwrap();
    fs::write(parts.join("h-8.jsonl"), format!("{header}\nnonsense\n{line}\n")).unwrap();
    let error = join(&file).unwrap_err().to_string();
    assert!(error.contains("h-8.jsonl, line 2"), "{error}");
    fs::remove_file(parts.join("h-8.jsonl")).unwrap();
    assert_eq!(join(&file).unwrap().events, 4 + 1);
}
