//! Writes Chrome trace JSON: the Trace Event Format's object form. Each worker process has a process with one
//! thread for training and one for the wire. Spans are complete events (`X`), moments are instant events
//! (`i`). Times are in microseconds from the first event.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::clocks::{Clock, aligned};
use super::collectives::Collectives;
use super::waits::{WaitedFor, waits};
use crate::error::Error;
use crate::part::Part;
use crate::span::{Event, Track, What};

/// Writes the timeline to a temporary file and renames it when it is complete. Returns the number of events.
pub(super) fn write(
    file: &Path,
    parts: &[Part],
    collectives: &Collectives,
    clocks: &BTreeMap<String, Clock>,
) -> Result<usize, Error> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let wrong = || Error::file(file);
    let out = File::create(temporary).map_err(wrong())?;
    let events = write_to(BufWriter::new(out), parts, collectives, clocks).map_err(wrong())?;
    fs::rename(temporary, file).map_err(wrong())?;
    Ok(events)
}

fn write_to(
    mut out: impl Write,
    parts: &[Part],
    collectives: &Collectives,
    clocks: &BTreeMap<String, Clock>,
) -> std::io::Result<usize> {
    let waits = waits(collectives, parts, clocks);
    let at = |part: &Part, moment: u64| aligned(moment, clocks.get(&part.header.clock));
    let starts = parts.iter().flat_map(|part| part.events.iter().map(|event| at(part, event.start)));
    let zero = starts.min().unwrap_or(0);
    let other = json!({ "clocks": clock_names(parts, clocks) });
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[")?;
    let mut written = 0;
    let mut line = |out: &mut dyn Write, value: Value| {
        let separator = if written == 0 { "\n" } else { ",\n" };
        written += 1;
        write!(out, "{separator}{value}")
    };
    for (pid, part) in parts.iter().enumerate() {
        for value in process_metadata(pid, part) {
            line(&mut out, value)?;
        }
        for (index, event) in part.events.iter().enumerate() {
            let (start, end) = (at(part, event.start) - zero, at(part, event.end) - zero);
            line(&mut out, as_json(pid, event, start, end, waits.get(&(pid, index))))?;
        }
    }
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(written)
}

fn clock_names(parts: &[Part], clocks: &BTreeMap<String, Clock>) -> Map<String, Value> {
    let named = |part: &Part| {
        let clock = clocks.get(&part.header.clock)?;
        let uncertainty = clock.uncertainty.map(microseconds);
        let value = json!({ "ahead_us": clock.ahead as f64 / 1e3, "uncertainty_us": uncertainty });
        Some((part.header.host.clone(), value))
    };
    parts.iter().filter_map(named).collect()
}

/// Returns the names of a process and its threads, as metadata events.
fn process_metadata(pid: usize, part: &Part) -> Vec<Value> {
    let mut ranks: Vec<String> = Vec::new();
    for event in &part.events {
        if let What::Rank { rank, .. } = event.what
            && ranks.last() != Some(&rank.to_string())
        {
            ranks.push(rank.to_string());
        }
    }
    let name = format!("rank {} ({})", ranks.join(", then "), part.header.host);
    let metadata = |name: &str, tid: usize, args: Value| json!({ "ph": "M", "name": name, "pid": pid, "tid": tid, "args": args });
    vec![
        metadata("process_name", 0, json!({ "name": name })),
        metadata("process_sort_index", 0, json!({ "sort_index": pid })),
        metadata("thread_name", Track::Training as usize, json!({ "name": "training" })),
        metadata("thread_name", Track::Wire as usize, json!({ "name": "wire" })),
    ]
}

fn as_json(pid: usize, event: &Event, start: i64, end: i64, waited: Option<&WaitedFor>) -> Value {
    let mut args = Map::new();
    args.insert("step".into(), event.step.into());
    if let Some(bucket) = event.what.bucket() {
        args.insert("bucket".into(), bucket.number.into());
        args.insert("bytes".into(), bucket.bytes.into());
        args.insert("wire_bytes".into(), bucket.wire_bytes.into());
    }
    if let Some(WaitedFor { rank, nanoseconds }) = waited {
        args.insert("waits_for_rank".into(), (*rank).into());
        args.insert("waited_us".into(), microseconds(*nanoseconds).into());
    }
    let mut value = json!({
        "name": event.what.name(),
        "cat": event.what.category(),
        "pid": pid,
        "tid": event.what.track() as usize,
        "ts": microseconds(start as u64),
        "args": args,
    });
    let kind = match event.what {
        What::Ready(_) | What::Rank { .. } => json!({ "ph": "i", "s": "t" }),
        _ => json!({ "ph": "X", "dur": microseconds((end - start) as u64) }),
    };
    if let (Value::Object(value), Value::Object(kind)) = (&mut value, kind) {
        value.extend(kind);
    }
    value
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
