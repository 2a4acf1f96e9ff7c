//! A part is the recording of one process: a header and events, each a line of JSON.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::span::Event;

/// First line of a part, which identifies the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHeader {
    /// The kernel's boot id: processes with the same one share a clock.
    pub clock: String,
    /// Name of the host.
    pub host: String,
    /// Process id.
    pub process: u32,
}

impl PartHeader {
    pub(crate) fn here() -> Self {
        let process = std::process::id();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        // Without a boot id the host counts as having its own clock, which costs only precision.
        let clock = boot.map_or_else(|_| host.clone(), |id| id.trim().to_owned());
        PartHeader { clock, host, process }
    }

    pub(crate) fn file_name(&self) -> String {
        let host: String =
            self.host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{host}-{}.jsonl", self.process)
    }
}

/// Recording of one process.
#[derive(Clone, Debug)]
pub struct Part {
    /// Header that identifies the process.
    pub header: PartHeader,
    /// Events, in the order of their ends.
    pub events: Vec<Event>,
}

impl Part {
    /// Reads a part. If its process was killed, an incomplete last line is ignored.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _half)| whole);
        let mut lines = whole.lines().enumerate();
        let Some((_, first)) = lines.next() else { return Ok(None) };
        let wrong = |line: usize, problem: serde_json::Error| Error::Line {
            path: path.to_owned(),
            line: line + 1,
            problem: problem.to_string(),
        };
        let header = serde_json::from_str(first).map_err(|problem| wrong(0, problem))?;
        let events =
            lines.map(|(number, line)| serde_json::from_str(line).map_err(|problem| wrong(number, problem)));
        Ok(Some(Part { header, events: events.collect::<Result<_, _>>()? }))
    }
}

pub(crate) struct PartWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl PartWriter {
    /// Creates this process's file, and its folder if needed.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let header = PartHeader::here();
        let path = folder.join(header.file_name());
        let file = File::create(&path).map_err(Error::file(&path))?;
        let mut part = PartWriter { path, file: BufWriter::new(file) };
        part.line(&header)?;
        Ok(part)
    }

    /// Writes events and passes them to the operating system.
    pub(crate) fn write(&mut self, events: &[Event]) -> Result<(), Error> {
        events.iter().try_for_each(|event| self.line(event))?;
        self.file.flush().map_err(Error::file(&self.path))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let result = serde_json::to_writer(&mut self.file, value).map_err(std::io::Error::from);
        result.and_then(|()| self.file.write_all(b"\n")).map_err(Error::file(&self.path))
    }
}
