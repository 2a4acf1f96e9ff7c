//! Tests of the served metrics.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use kolo_recipe::Recipe;

use super::ENTRY;
use crate::calendar::Calendar;
use crate::metric::Metric;
use crate::progress::Progress;
use crate::sinks::LiveMetrics;
use crate::sinks::sink::{MetricSink, SinkContext};
use crate::sinks::tests::{STEPS, TOTAL, go};

fn opened(port: u16, unit: &str) -> Box<dyn MetricSink> {
    let metrics_addr = port.to_string().parse().ok();
    let live = LiveMetrics { metrics_addr, ..LiveMetrics::default() };
    let (config, metrics) = (&Recipe::default(), &[Metric::ACCURACY][..]);
    (ENTRY.open)(&SinkContext { folder: None, config, metrics, unit, live: &live }).unwrap()
}

fn begun() -> Progress {
    Progress::at(0, Calendar::for_tests(STEPS as u64, TOTAL))
}

fn page(port: u16) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    page
}

/// Returns the value of a metric without labels but those of the run.
fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(&format!("kolo_train_{name}{{")));
    line.unwrap_or_else(|| panic!("{name} is not in {page}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_page_shows_the_last_step_also_of_a_run_that_has_gone_back() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut progress, mut sink) = (begun(), Some(opened(port, "odd units")));
    sink.as_mut().unwrap().align(&progress).unwrap();
    go(&mut progress, 6, &mut sink);
    let seen = page(port);
    for (name, expected) in [
        ("step_total", 6.0),
        ("planned_steps", TOTAL as f64),
        ("epoch", 2.0),
        ("loss", 0.5),
        ("learning_rate", 0.01),
        ("odd_units_per_second", 80.0),
        ("test_accuracy", 0.9),
        ("gradient_norm", 0.25),
        ("step_seconds_count", 6.0),
    ] {
        assert_eq!(value(&seen, name), expected, "{name}");
    }
    assert!(!seen.contains("loss_scale"), "what is not measured is not there");
    progress.move_to(3);
    sink.as_mut().unwrap().align(&progress).unwrap();
    assert_eq!((value(&page(port), "step_total"), value(&page(port), "epoch")), (3.0, 1.0));
    drop(sink);
    TcpStream::connect(("127.0.0.1", port)).unwrap_err();
}

#[test]
fn an_address_that_is_taken_is_told_once_and_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (progress, mut sink) = (begun(), opened(port, "images"));
    let error = sink.align(&progress).unwrap_err().to_string();
    assert!(error.contains(&format!("--metrics-addr 127.0.0.1:{port}: Address already in use")), "{error}");
    sink.align(&progress).unwrap();
    sink.flush().unwrap();
    drop(taken);
    sink.flush().unwrap();
    assert_eq!(value(&page(port), "step_total"), 0.0);
}
