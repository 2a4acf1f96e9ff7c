//! The contents of the event files after a run, with any sequence of writers.

use std::path::Path;

use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;
use prost::Message;

use super::event::Event;
use super::record::records;
use super::{ENTRY, FOLDER};
use crate::calendar::Calendar;
use crate::metric::Metric;
use crate::progress::Progress;
use crate::sinks::LiveMetrics;
use crate::sinks::sink::{MetricSink, SinkContext};
use crate::sinks::tests::{STEPS, TOTAL, go};

/// Returns all events, file by file.
fn events(run: &Path) -> Vec<Event> {
    let mut paths: Vec<_> =
        std::fs::read_dir(run.join(FOLDER)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let file = std::fs::read(path).unwrap();
        let all: Vec<_> =
            records(&file).map(|(record, data)| (record.len(), Event::decode(data).unwrap())).collect();
        assert_eq!(all.iter().map(|(length, _)| length).sum::<usize>(), file.len(), "nothing is damaged");
        assert_eq!(untimed(&all[0].1), untimed(&Event::version()));
        all.into_iter().map(|(_, event)| event)
    };
    paths.iter().flat_map(read).collect()
}

fn untimed(event: &Event) -> Event {
    let mut event = event.clone();
    event.wall_time = 0.0;
    event
}

/// Returns each value with its tag and step, sorted by step.
fn scalars(run: &Path) -> Vec<(i64, String, f32)> {
    let all = events(run);
    let values = all.iter().flat_map(|event| event.values().iter().map(move |value| (event.step, value)));
    let mut scalars: Vec<_> =
        values.map(|(step, value)| (step, value.tag.clone(), value.simple_value.unwrap())).collect();
    scalars.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    scalars
}

fn opened(run: &Path, progress: &Progress) -> Option<Box<dyn MetricSink>> {
    let live = LiveMetrics { tensorboard: true, ..LiveMetrics::default() };
    let mut sink = (ENTRY.open)(&SinkContext {
        folder: Some(&RunFolder::at(run.into())),
        config: &Recipe::default(),
        metrics: &[Metric::ACCURACY],
        unit: "images",
        live: &live,
    });
    sink.as_mut().unwrap().align(progress).unwrap();
    sink
}

fn begun() -> Progress {
    Progress::at(0, Calendar::for_tests(STEPS as u64, TOTAL))
}

#[test]
fn each_step_and_epoch_is_there_once() {
    let mut whole = None;
    for (until, from) in [(0, 0), (3, 3), (6, 5), (6, 3), (4, 4), (5, 8), (8, 8), (10, 7), (2, 10)] {
        let place = tempfile::tempdir().unwrap();
        let mut progress = begun();
        let mut sink = opened(place.path(), &progress);
        go(&mut progress, until, &mut sink);
        sink.as_mut().unwrap().flush().unwrap();
        // The process is killed in the middle of a record.
        let newest = std::fs::read_dir(place.path().join(FOLDER)).unwrap().last().unwrap().unwrap().path();
        let mut file = std::fs::read(&newest).unwrap();
        file.extend([24, 0, 0]);
        std::fs::write(&newest, file).unwrap();
        progress = begun();
        go(&mut progress, from, &mut None);
        sink = opened(place.path(), &progress);
        go(&mut progress, TOTAL, &mut sink);
        sink.unwrap().flush().unwrap();

        let scalars = scalars(place.path());
        let of =
            |tag: &str| scalars.iter().filter(|(_, other, _)| other == tag).map(|(step, ..)| *step).collect();
        let (steps, epochs): (Vec<i64>, Vec<i64>) = (of("step/loss"), of("epoch/test_accuracy"));
        assert_eq!((steps, epochs), ((0..TOTAL as i64).collect(), vec![3, 7, 9]), "{until} {from}");
        assert_eq!(*whole.get_or_insert(scalars.clone()), scalars, "{until} {from}");
    }
    let whole = whole.unwrap();
    assert!(whole.contains(&(9, "epoch/test_accuracy".into(), 0.9)));
    assert!(whole.contains(&(0, "step/images_per_second".into(), 80.0)));
}

#[test]
fn the_same_process_goes_on_in_its_file_until_it_goes_back() {
    let place = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(place.path().join(FOLDER)).unwrap().count();
    let mut progress = begun();
    let mut sink = opened(place.path(), &progress);
    go(&mut progress, 3, &mut sink);
    let mut sink = sink.unwrap();
    sink.align(&progress).unwrap();
    assert_eq!(files(), 1);
    progress.move_to(2);
    sink.align(&progress).unwrap();
    assert_eq!(files(), 2);
    let all = events(place.path());
    let start = all.iter().find(|event| event.step == 2 && event.values().is_empty()).unwrap();
    assert_eq!(untimed(start), untimed(&Event::start(2)));
}

#[test]
fn what_cannot_be_written_waits() {
    let place = tempfile::tempdir().unwrap();
    let (run, away) = (place.path().join("run"), place.path().join("away"));
    std::fs::create_dir(&run).unwrap();
    let mut progress = begun();
    let mut sink = opened(&run, &progress);
    std::fs::rename(&run, &away).unwrap();
    go(&mut progress, 3, &mut sink);
    sink.as_mut().unwrap().flush().unwrap_err();
    assert!(!run.exists(), "the folder is not made anew");
    std::fs::rename(&away, &run).unwrap();
    sink.unwrap().flush().unwrap();
    assert_eq!(scalars(&run).iter().filter(|(_, tag, _)| tag == "step/loss").count(), 3);
}
