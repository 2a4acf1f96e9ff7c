//! The messages between the store and its clients: JSON behind a length.

use std::io::{Error, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Error as GroupError;
use kolo_schedule::Rank;

/// Bytes of the longest message accepted, so that a stranger's bytes cannot make us allocate.
const MAX_MESSAGE: usize = 1 << 20;

/// A message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Keep a value, in place of an older one.
    Set { key: String, value: String },
    /// Give a value, as soon as it is there, at most after that time.
    Get { key: String, wait_ms: u64 },
    /// As `Get`, and keep the value no longer.
    Take { key: String, wait_ms: u64 },
    /// Give the values of `topic/0` to `topic/<count − 1>`, from the number `from` on, as soon as all are
    /// there, at most after that time. An answer has as many as a message carries.
    Gather { topic: String, from: usize, count: usize, wait_ms: u64 },
    /// Keep this value once this connection has ended, however it does: the last will of a process that may
    /// be killed.
    Will { key: String, value: String },
    /// From now on this connection stands for that rank's life.
    Monitor { rank: Rank },
    /// The monitored rank has seen a failure.
    Failed { error: GroupError },
    /// The monitored rank has waited too long for another; the error blames that one.
    Stalled { error: GroupError },
    /// The answer to [`Reply::Probe`]: whom the monitored rank waits for.
    Waiting { on: Option<Rank> },
    /// The monitored rank leaves in good order.
    Leave,
}

/// A message of the store.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The value asked for; `None` if it did not come in time.
    Value(Option<String>),
    /// Values of a topic, in their order, at least one.
    Values(Vec<String>),
    /// These values of a topic did not come in time: the first ones that are missing.
    Absent { missing: Vec<usize> },
    /// A value is kept.
    Kept,
    /// A value is not kept, or one that may be waited for could not be, and why.
    Refused { why: String },
    /// This connection now stands for its rank's life.
    Monitored,
    /// Asks whom this rank waits for.
    Probe,
    /// The group has failed.
    Failed { error: GroupError },
    /// A rank has left in good order.
    Left { rank: Rank },
}

/// Writes one message.
pub fn write(stream: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let body = serde_json::to_vec(message)?;
    if body.len() > MAX_MESSAGE {
        let problem = format!("a message of {} bytes, where {MAX_MESSAGE} are the most", body.len());
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame)
}

/// Whether a client can be told a value.
pub fn can_carry(value: &str) -> bool {
    /// What stands around it.
    const FRAME: usize = 64;
    /// Bytes of a character of one byte that is written as a number.
    const ESCAPED: usize = 6;
    // Most are far below, and need not be written for it.
    let at_most = value.len() * ESCAPED + FRAME;
    at_most <= MAX_MESSAGE || serde_json::to_vec(value).is_ok_and(|text| text.len() + FRAME <= MAX_MESSAGE)
}

/// How many of these values one message carries, from the first on; at least one, which
/// [can be carried](can_carry).
pub fn carried<'a>(values: impl Iterator<Item = &'a String>) -> usize {
    /// What stands around the values, and between two of them.
    const FRAME: usize = 64;
    const BETWEEN: usize = 1;
    let mut bytes = FRAME;
    let fits = |value: &&String| {
        bytes += serde_json::to_vec(value).map_or(MAX_MESSAGE, |text| text.len()) + BETWEEN;
        bytes <= MAX_MESSAGE
    };
    values.take_while(fits).count().max(1)
}

/// Reads one message.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> std::io::Result<T> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_MESSAGE {
        return Err(Error::new(ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    // Grows with what comes, not with what is promised.
    let mut body = Vec::new();
    stream.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_refused() {
        assert!(read::<Request>(&mut &[1, 2][..]).is_err());
        assert!(read::<Request>(&mut &[255, 255, 255, 255, 0][..]).is_err());
        assert!(read::<Request>(&mut &[3, 0, 0, 0, b'x', b'y', b'z'][..]).is_err());
        let mut bytes = Vec::new();
        write(&mut bytes, &Request::Monitor { rank: Rank(3) }).unwrap();
        assert!(matches!(read(&mut bytes.as_slice()), Ok(Request::Monitor { rank: Rank(3) })));
    }

    #[test]
    fn what_can_be_carried_is_read_and_nothing_else_is_written() {
        for (value, fits) in
            [("v".repeat(1_000_000), true), ("v".repeat(1 << 20), false), ("\u{1}".repeat(200_000), false)]
        {
            assert_eq!(can_carry(&value), fits, "{} bytes", value.len());
            let mut bytes = Vec::new();
            let written = write(&mut bytes, &Reply::Value(Some(value)));
            assert_eq!((written.is_ok(), bytes.is_empty()), (fits, !fits));
            assert_eq!(read::<Reply>(&mut bytes.as_slice()).is_ok(), fits);
        }
    }

    #[test]
    fn as_many_values_go_into_a_message_as_fit() {
        let quoted = || "\"".repeat(1000);
        let values: Vec<String> = (0..10_000).map(|_| quoted()).collect();
        let count = carried(values.iter());
        // A quote takes two bytes.
        assert_eq!(count, (MAX_MESSAGE - 64) / 2003);
        let mut bytes = Vec::new();
        write(&mut bytes, &Reply::Values(values[..count].to_vec())).unwrap();
        assert_eq!(carried([&"v".repeat(1_048_000)].into_iter()), 1, "a long one goes alone");
    }
}
