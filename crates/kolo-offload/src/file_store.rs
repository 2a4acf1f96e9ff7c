//! The store: the record that updates work on, those that were read ahead, and those on their way to the
//! file.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use kolo_optim::{MOST_ARRAYS, StoreFailure, StoreFault, VisitRun};

use crate::io_thread::{Answer, IoThread, Request};
use crate::records::Records;
use crate::state_file::StateFile;

/// Values that are read ahead, and as many that are on their way to the file, at most: 4 MiB each. A larger
/// record is read when it is needed.
const AHEAD: usize = 1 << 20;

/// Bytes of memory for records that are read ahead or written behind, at most; besides one record.
pub const BUFFERS: usize = 2 * AHEAD * size_of::<f32>();

/// A file with room for a store's state.
pub(crate) struct Space {
    pub(crate) file: Arc<StateFile>,
    /// False if an earlier store has written to the file.
    pub(crate) is_fresh: bool,
    /// Warning for the user, if this is not the place that the user gave.
    pub(crate) warning: Option<String>,
}

/// State in a file.
#[derive(Debug)]
pub(crate) struct FileStore {
    names: Vec<&'static str>,
    records: Records,
    file: Arc<StateFile>,
    /// False if the file may have values of an earlier store where this one has written nothing.
    is_fresh: bool,
    warning: Option<String>,
    thread: IoThread,
    current: Option<Current>,
    /// Records that were asked for and that no update has needed yet, in the order of the last step.
    ahead: VecDeque<Ahead>,
    /// Record that followed each one in the last step.
    following: Vec<Option<usize>>,
    /// True for each record that is in the file; the others are 0.
    is_written: Vec<bool>,
    /// Buffers that nothing uses.
    free: Vec<Vec<f32>>,
    /// Values on their way to the file.
    behind: usize,
    ticket: u64,
    failure: Option<StoreFailure>,
}

/// Record that updates work on.
#[derive(Debug)]
struct Current {
    record: usize,
    elements: Range<usize>,
    buffer: Vec<f32>,
}

#[derive(Debug)]
struct Ahead {
    record: usize,
    ticket: u64,
    /// Values, once they are here.
    buffer: Option<Vec<f32>>,
}

impl FileStore {
    /// Creates a store whose state is 0.
    pub(crate) fn new(
        Space { file, is_fresh, warning }: Space,
        names: Vec<&'static str>,
        records: Records,
    ) -> Result<Self, StoreFailure> {
        let thread = IoThread::start(file.clone()).map_err(|error| StoreFailure {
            fault: StoreFault::NoRoom,
            problem: format!("cannot start a thread that reads the optimizer's state ({error})"),
        })?;
        Ok(FileStore {
            following: vec![None; records.count()],
            is_written: vec![false; records.count()],
            names,
            records,
            file,
            is_fresh,
            warning,
            thread,
            current: None,
            ahead: VecDeque::new(),
            free: Vec::new(),
            behind: 0,
            ticket: 0,
            failure: None,
        })
    }

    /// Calls `update` with the state of some elements, which are in one record; what it changes is kept. Does
    /// nothing after a failure.
    pub(crate) fn with(&mut self, elements: Range<usize>, update: impl FnOnce(&mut [&mut [f32]])) {
        let is_here = |current: &Current| {
            current.elements.start <= elements.start && elements.end <= current.elements.end
        };
        if self.failure.is_some() {
            return;
        }
        if !self.current.as_ref().is_some_and(is_here) {
            self.fetch(self.records.of(elements.start));
        }
        let Some(Current { elements: all, buffer, .. }) = &mut self.current else { return };
        let part = elements.start - all.start..elements.end - all.start;
        let mut state: [&mut [f32]; MOST_ARRAYS] = Default::default();
        let arrays = buffer.chunks_exact_mut(all.len().max(1));
        state.iter_mut().zip(arrays).for_each(|(state, array)| *state = &mut array[part.clone()]);
        update(&mut state[..self.names.len()]);
    }

    /// Returns the end of the record that has an element.
    pub(crate) fn end_of(&self, element: usize) -> usize {
        match &self.current {
            Some(current) if current.elements.contains(&element) => current.elements.end,
            _ => self.records.elements(self.records.of(element)).end,
        }
    }

    /// Makes a record the current one, and asks for those that followed it in the last step.
    fn fetch(&mut self, record: usize) {
        if let Some(before) = self.put_back() {
            self.following[before] = Some(record);
        }
        if self.failure.is_some() {
            return;
        }
        // A step in another order: what was read ahead of this record is not needed soon.
        match self.ahead.iter().position(|ahead| ahead.record == record) {
            Some(place) => (0..place).for_each(|_| self.forget_first()),
            None => self.forget_ahead(),
        }
        if self.ahead.is_empty() && self.is_written[record] {
            self.ask(record);
        }
        let buffer = match self.ahead.front() {
            Some(_) => self.wait_for_first(),
            None => Some(self.zeros(record)),
        };
        self.current =
            buffer.map(|buffer| Current { record, elements: self.records.elements(record), buffer });
        self.read_ahead(record);
    }

    /// Asks for the records that followed `record` in the last step.
    fn read_ahead(&mut self, record: usize) {
        let mut last = self.ahead.back().map_or(record, |ahead| ahead.record);
        let mut values: usize = self.ahead.iter().map(|ahead| self.records.values(ahead.record)).sum();
        while let Some(next) = self.following[last].filter(|next| self.failure.is_none() && *next != record) {
            values += self.records.values(next);
            let is_asked = self.ahead.iter().any(|ahead| ahead.record == next);
            if is_asked || values > AHEAD || !self.is_written[next] {
                return;
            }
            self.ask(next);
            last = next;
        }
    }

    fn ask(&mut self, record: usize) {
        self.ticket += 1;
        let (ticket, place) = (self.ticket, self.records.place(record, 0));
        let buffer = self.buffer(record);
        self.thread.ask(Request { ticket, is_write: false, place, buffer });
        self.ahead.push_back(Ahead { record, ticket, buffer: None });
    }

    /// Returns the values of the first record that was asked for; `None` after a failure.
    fn wait_for_first(&mut self) -> Option<Vec<f32>> {
        while self.ahead.front()?.buffer.is_none() {
            self.wait()?;
        }
        self.ahead.pop_front()?.buffer
    }

    /// Hands the current record to the thread, and returns its number.
    fn put_back(&mut self) -> Option<usize> {
        let Current { record, buffer, .. } = self.current.take()?;
        self.is_written[record] = true;
        self.behind += buffer.len();
        let place = self.records.place(record, 0);
        self.thread.ask(Request { ticket: 0, is_write: true, place, buffer });
        while let Some(answer) = self.thread.poll() {
            self.receive(answer);
        }
        while self.behind > AHEAD {
            self.wait()?;
        }
        Some(record)
    }

    /// Receives an answer; `None` after a failure.
    fn wait(&mut self) -> Option<()> {
        match self.thread.next() {
            Some(answer) => self.receive(answer),
            None => self.fail(StoreFailure {
                fault: StoreFault::Lost,
                problem: "the thread that reads the optimizer's state has ended".into(),
            }),
        }
        self.failure.is_none().then_some(())
    }

    fn receive(&mut self, Answer { ticket, is_write, buffer, result }: Answer) {
        // After a failure nothing counts what is still on its way.
        if self.failure.is_some() {
            return;
        }
        if let Err(failure) = result {
            return self.fail(failure);
        }
        if is_write {
            self.behind -= buffer.len();
            self.recycle(buffer);
            return;
        }
        match self.ahead.iter_mut().find(|ahead| ahead.ticket == ticket) {
            Some(ahead) => ahead.buffer = Some(buffer),
            None => self.recycle(buffer),
        }
    }

    fn fail(&mut self, failure: StoreFailure) {
        self.failure.get_or_insert(failure);
        (self.current, self.behind) = (None, 0);
        self.ahead.clear();
    }

    fn forget_first(&mut self) {
        if let Some(buffer) = self.ahead.pop_front().and_then(|ahead| ahead.buffer) {
            self.recycle(buffer);
        }
    }

    fn forget_ahead(&mut self) {
        take(&mut self.ahead).into_iter().filter_map(|ahead| ahead.buffer).for_each(|b| self.recycle(b));
    }

    /// Returns a buffer of a record's length.
    fn buffer(&mut self, record: usize) -> Vec<f32> {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.resize(self.records.values(record), 0.0);
        buffer
    }

    fn zeros(&mut self, record: usize) -> Vec<f32> {
        let mut buffer = self.buffer(record);
        buffer.fill(0.0);
        buffer
    }

    /// Keeps a buffer for another record, unless it is a large one.
    fn recycle(&mut self, buffer: Vec<f32>) {
        let kept: usize = self.free.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= AHEAD {
            self.free.push(buffer);
        }
    }

    /// Waits until all changes are in the file.
    fn settle(&mut self) -> Option<()> {
        self.put_back();
        self.forget_ahead();
        while self.behind > 0 {
            self.wait()?;
        }
        self.failure.is_none().then_some(())
    }

    /// Returns true if a failure has ended the store.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the file after the last write.
    pub(crate) fn into_file(self) -> Arc<StateFile> {
        self.file.clone()
    }

    /// Visits one array's part of a record, which `is_written` says to be in the file.
    fn visit_run(
        &mut self,
        (array, record): (usize, usize),
        is_written: bool,
        [values, before]: &mut [Vec<f32>; 2],
        visit: &mut VisitRun<'_>,
    ) -> Result<(), StoreFailure> {
        let (elements, place) = (self.records.elements(record), self.records.place(record, array));
        // Runs of one length, so that a large tensor takes no large buffer.
        for start in elements.clone().step_by(kolo_reduction::BLOCK) {
            let len = kolo_reduction::BLOCK.min(elements.end - start);
            let place = place + ((start - elements.start) * size_of::<f32>()) as u64;
            values.clear();
            values.resize(len, 0.0);
            if is_written {
                self.file.read(place, values)?;
            }
            before.clone_from(values);
            visit(self.names[array], start, values);
            let is_changed = |(now, before): (&f32, &f32)| now.to_bits() != before.to_bits();
            // Zeros take the place of what an earlier store has left.
            let is_stale = !is_written && !self.is_fresh;
            if is_stale || values.iter().zip(before.iter()).any(is_changed) {
                self.file.write(place, values)?;
                self.is_written[record] = true;
            }
        }
        Ok(())
    }

    /// Names of the arrays.
    pub(crate) fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Visits all of the state, as [`StateStore::visit`](kolo_optim::StateStore::visit).
    pub(crate) fn visit(&mut self, visit: &mut VisitRun<'_>) {
        let is_there = self.settle().is_some();
        let mut room = [Vec::new(), Vec::new()];
        // A record is in the file with all of its arrays, or with none.
        let is_written = self.is_written.clone();
        for array in 0..self.names.len() {
            for record in (0..self.records.count()).filter(|_| is_there) {
                if let Err(failure) = self.visit_run((array, record), is_written[record], &mut room, visit) {
                    return self.fail(failure);
                }
            }
            if self.records.count() == 0 {
                visit(self.names[array], 0, &mut []);
            }
        }
    }

    /// Visits the records of one array that have some of these elements.
    pub(crate) fn visit_array(&mut self, name: &str, wanted: &Range<usize>, visit: &mut VisitRun<'_>) {
        let array = self.names.iter().position(|known| *known == name);
        let (Some(()), Some(array)) = (self.settle(), array) else { return };
        let mut room = [Vec::new(), Vec::new()];
        for record in 0..self.records.count() {
            let elements = self.records.elements(record);
            if elements.start >= wanted.end || elements.end <= wanted.start {
                continue;
            }
            // A record is in the file with all of its arrays, or with none.
            let is_written = self.is_written[record];
            let arrays = if is_written { array..array + 1 } else { 0..self.names.len() };
            for other in arrays {
                let visited = match other == array {
                    true => self.visit_run((other, record), is_written, &mut room, visit),
                    false => self.visit_run((other, record), is_written, &mut room, &mut |_, _, _| ()),
                };
                if let Err(failure) = visited {
                    return self.fail(failure);
                }
            }
        }
    }

    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    pub(crate) fn check(&self) -> Result<(), StoreFailure> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}
