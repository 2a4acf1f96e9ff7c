//! Messages between the store and its clients: JSON with a length prefix.

use std::io::{Error, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Error as GroupError;
use kolo_schedule::Rank;

/// Maximum accepted length of a message in bytes, so that a stranger cannot make the process allocate more.
const MAX_MESSAGE: usize = 1 << 20;

/// A message from a client.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Sets a value, replacing an older one.
    Set { key: String, value: String },
    /// Requests a value as soon as it is set, with a time limit.
    Get { key: String, wait_ms: u64 },
    /// Works like `Get`, and removes the value.
    Take { key: String, wait_ms: u64 },
    /// Requests the values of `topic/0` to `topic/<count − 1>`, from number `from` on, as soon as all are
    /// set, with a time limit. An answer has as many values as one message can carry.
    Gather { topic: String, from: usize, count: usize, wait_ms: u64 },
    /// Sets this value when this connection ends, for whatever reason: the last will of a process that may
    /// die.
    Will { key: String, value: String },
    /// Makes this connection the one that shows that the rank lives.
    Monitor { rank: Rank },
    /// The monitored rank has detected a failure.
    Failed { error: GroupError },
    /// The monitored rank has waited too long for another rank, which the error blames.
    Stalled { error: GroupError },
    /// Answer to [`Reply::Probe`]: the rank that the monitored rank waits for.
    Waiting { on: Option<Rank> },
    /// The monitored rank leaves in good order.
    Leave,
}

/// A message from the store.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The requested value; `None` if it was not set in time.
    Value(Option<String>),
    /// Values of a topic in order, at least one.
    Values(Vec<String>),
    /// The first values of a topic that were not set in time.
    Absent { missing: Vec<usize> },
    /// A value is kept.
    Kept,
    /// Reason why a value is not kept, or why the value that the client waits for could not be.
    Refused { why: String },
    /// This connection now shows that its rank lives.
    Monitored,
    /// Asks which rank this rank waits for.
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
        let problem = format!("a message has {} bytes; the limit is {MAX_MESSAGE}", body.len());
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame)
}

/// Returns true if one message can carry a value to a client.
pub fn can_carry(value: &str) -> bool {
    /// Bytes around the value.
    const FRAME: usize = 64;
    /// Bytes of a one-byte character that JSON escapes as a number.
    const ESCAPED: usize = 6;
    // Most values are far shorter, and need not be encoded to find out.
    let at_most = value.len() * ESCAPED + FRAME;
    at_most <= MAX_MESSAGE || serde_json::to_vec(value).is_ok_and(|text| text.len() + FRAME <= MAX_MESSAGE)
}

/// Returns the number of leading values that one message can carry; at least one, which [can be
/// carried](can_carry).
pub fn carried<'a>(values: impl Iterator<Item = &'a String>) -> usize {
    /// Bytes around the values, and between two of them.
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
    stream.read_exact(&mut len).map_err(name_end)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_MESSAGE {
        return Err(Error::new(ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    // The buffer grows with the received bytes, not with the announced length.
    let mut body = Vec::new();
    stream.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(name_end(ErrorKind::UnexpectedEof.into()));
    }
    Ok(serde_json::from_slice(&body)?)
}

/// Names the end of a stream in a user's words, not in those of a reader of buffers.
fn name_end(error: Error) -> Error {
    match error.kind() {
        kind @ ErrorKind::UnexpectedEof => Error::new(kind, "it has closed the connection"),
        _ => error,
    }
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
    fn only_values_that_fit_into_a_message_are_written() {
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
