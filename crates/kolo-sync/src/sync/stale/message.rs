//! Messages between a worker and a server in a step: two to the server, two or three back.

use std::time::Duration;

use kolo_comm::schedule::{Message, Range as Elements};
use kolo_comm::{Buffer, Collective, Element, Error, Group, Pending, Rank};

use kolo_step::timed;

/// Number of values in a push's header.
const PUSH: usize = 5;
/// Number of values in a pull's header.
const PULL: usize = 2;

/// Content of a worker's push besides its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct PushHeader {
    /// Number of the step, from 0.
    pub(super) step: u64,
    /// Samples of the worker's shards in that step.
    pub(super) count: f64,
    /// Sum of the loss over these samples.
    pub(super) loss: f64,
    /// Learning rate of that step.
    pub(super) rate: f64,
    /// True if it is the last step of its round.
    pub(super) ends: bool,
}

/// A push: its header, and its content. The content is the gradient of the server's part, followed by a mark
/// for each slice of the part: 1 if the worker used that tensor, else 0.
pub(super) struct Push {
    pub(super) header: PushHeader,
    pub(super) content: Buffer<f32>,
}

/// A server's answer.
pub(super) struct Answer {
    /// Number of steps that the values are behind.
    pub(super) behind: u64,
    /// Loss and count, each summed over all workers, of the steps that became known since the last answer.
    pub(super) losses: Vec<[f64; 2]>,
    /// Values of the server's part.
    pub(super) values: Buffer<f32>,
}

/// Connection of one worker and one server, on either side.
pub(super) struct Pair(Group);

impl Pair {
    /// Creates the connection over a group of these two.
    pub(super) fn new(group: Group) -> Self {
        Pair(group)
    }

    /// Returns the group, whose buffers messages use.
    pub(super) fn group(&self) -> &Group {
        &self.0
    }

    fn peer(&self) -> Rank {
        Rank(1 - self.0.rank().0)
    }

    fn message(&self, len: usize) -> Message {
        Message { peer: self.peer(), range: Elements { start: 0, len } }
    }

    fn start_send<T: Element>(&self, buffer: Buffer<T>) -> Pending<Buffer<T>> {
        let send = [self.message(buffer.len())].into();
        self.0.start(Collective::Exchange { send, receive: [].into() }, buffer)
    }

    fn start_receive<T: Element>(&self, len: usize) -> Result<Pending<Buffer<T>>, Error> {
        let receive = [self.message(len)].into();
        Ok(self.0.start(Collective::Exchange { send: [].into(), receive }, self.0.alloc(len)?))
    }

    fn receive<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let mut buffer = self.0.alloc(len)?;
        if len > 0 {
            self.0.receive(&mut buffer, self.peer())?;
        }
        Ok(buffer)
    }

    /// Worker: starts a push, and the pull of `values` values that answers it. For a part without values no
    /// content is sent.
    pub(super) fn start(&self, push: Push, values: usize) -> Result<Exchange, Error> {
        let PushHeader { step, count, loss, rate, ends } = push.header;
        let header = [step as f64, count, loss, rate, f64::from(u8::from(ends))];
        let has_content = values > 0;
        let header = self.start_send(self.0.copied(&header)?);
        let content = has_content.then(|| self.start_send(push.content));
        let answer = self.start_receive(PULL)?;
        let values = has_content.then(|| self.start_receive(values)).transpose()?;
        Ok(Exchange { header, content, answer, values })
    }

    /// Server: waits for the worker's next push, whose content has `len` elements.
    pub(super) fn receive_push(&self, len: usize) -> Result<Push, Error> {
        let header = self.receive::<f64>(PUSH)?;
        let [step, count, loss, rate, ends] = std::array::from_fn(|word| header[word]);
        let header = PushHeader { step: step as u64, count, loss, rate, ends: ends != 0.0 };
        Ok(Push { header, content: self.receive(len)? })
    }

    /// Server: answers a push.
    pub(super) fn answer(&self, answer: Answer) -> Result<(), Error> {
        let header = [answer.behind as f64, answer.losses.len() as f64];
        self.0.send(&header, self.peer())?;
        if !answer.values.is_empty() {
            let send = [self.message(answer.values.len())].into();
            self.0.run(&Collective::Exchange { send, receive: [].into() }, answer.values)?;
        }
        if !answer.losses.is_empty() {
            self.0.send(&answer.losses.concat(), self.peer())?;
        }
        Ok(())
    }
}

/// A push and its pull in flight, on the worker's side.
pub(super) struct Exchange {
    header: Pending<Buffer<f64>>,
    content: Option<Pending<Buffer<f32>>>,
    answer: Pending<Buffer<f64>>,
    values: Option<Pending<Buffer<f32>>>,
}

impl Exchange {
    /// Waits for the server's answer, writes its values to `values`, and adds the time waited to `exposed`.
    /// Errors: a rank died, left or did not take part in time (naming it).
    pub(super) fn finish(
        self,
        pair: &Pair,
        values: &mut [f32],
        exposed: &mut Duration,
    ) -> Result<(u64, Vec<[f64; 2]>), Error> {
        timed(exposed, "the server", || {
            self.header.wait()?;
            self.content.map_or(Ok(()), |content| content.wait().map(drop))?;
            let header = self.answer.wait()?;
            if let Some(pulled) = self.values {
                values.copy_from_slice(&pulled.wait()?);
            }
            let losses = pair.receive::<f64>(2 * header[1] as usize)?;
            Ok((header[0] as u64, losses.as_chunks::<2>().0.to_vec()))
        })
    }
}
