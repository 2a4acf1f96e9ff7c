//! What the launchers of a job say to one another: JSON in the store of the one that leads.
//!
//! | key | who sets it | value |
//! |---|---|---|
//! | `roll` | every launcher, in its own store | [`Roll`](super::roll::Roll): whoever finds one launcher finds all |
//! | `in/<launcher>/<number>` | a launcher, to the one that leads | [`Up`] |
//! | `in/<launcher>/end` | the store, as the launcher's last will | [`Up::Lost`] |
//! | `to/<launcher>/<number>` | the one that leads, to a launcher | [`Down`] |
//!
//! Numbers count from 0 on both sides, so that nothing is heard twice or out of order.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::orders::Departure;
use super::roll::Roll;
use super::words::{Arrival, Seat};

pub(super) const IN: &str = "in/";
pub(super) const ROLL: &str = "roll";

/// To the one that leads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Up {
    /// A launcher comes, or comes back to one that leads since another has gone.
    Hello(Hello),
    /// All that it had to say about its members until now is said.
    Told,
    /// A member has been started.
    Expect { member: String },
    /// A member has come to the meeting.
    Arrival { member: String, arrival: Arrival },
    /// A member's process has taken so much CPU time.
    Worked { member: String, total: Duration },
    /// A member's process has ended.
    Gone { member: String, departure: Departure },
    /// Nothing is new.
    Beat,
    /// The work of its members is done.
    Done,
    /// It ends in good order.
    Bye,
    /// It has ended without a word.
    Lost,
}

/// Who comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Where others reach it.
    pub(super) address: SocketAddr,
    /// The number that it has been given by its user.
    pub(super) node: Option<usize>,
    /// Workers that it starts once it is welcome.
    pub(super) starts: usize,
    /// It was welcome before; the last generation that it knows of.
    pub(super) back: Option<Formed>,
}

/// A generation that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Formed {
    pub(super) generation: u64,
    /// In the order of their ranks.
    pub(super) members: Vec<String>,
    /// Why the last one has ended.
    pub(super) reason: String,
}

/// From the one that leads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Down {
    /// The launcher belongs to the job, which has begun.
    Welcome {
        node: usize,
    },
    /// It does not, or not any more.
    Refused {
        why: String,
    },
    /// The launchers are others than before.
    Roll(Roll),
    Formed(Formed),
    /// A seat for one of its members, at the number of its arrival.
    Seat {
        member: String,
        number: u64,
        seat: Seat,
    },
    /// Members are asked to come to the meeting.
    Change {
        generation: u64,
    },
    Evict {
        member: String,
    },
    TooFew {
        present: usize,
    },
    /// Members of other launchers.
    Elsewhere {
        members: usize,
    },
}

/// The key of a launcher's word to the one that leads.
pub(super) fn up(id: u64, number: u64) -> String {
    format!("{IN}{id}/{number}")
}

/// The key of its last will.
pub(super) fn end(id: u64) -> String {
    format!("{IN}{id}/end")
}

/// The key of a word to a launcher.
pub(super) fn down(id: u64, number: u64) -> String {
    format!("to/{id}/{number}")
}

/// What has come in, in the order in which each launcher has said it. What cannot be understood is left out, and told in the
/// log.
pub(super) fn sorted(taken: Vec<(String, String)>) -> Vec<(u64, Up)> {
    let mut words: Vec<(u64, u64, Up)> = taken.iter().filter_map(|(key, text)| read(key, text)).collect();
    words.sort_by_key(|(id, number, _)| (*id, *number));
    words.into_iter().map(|(id, _, word)| (id, word)).collect()
}

fn read(key: &str, text: &str) -> Option<(u64, u64, Up)> {
    let (id, number) = key.split_once('/')?;
    let number = if number == "end" { u64::MAX } else { number.parse().ok()? };
    let word = serde_json::from_str(text).inspect_err(|error| log::warn!("launcher {id}: {error}")).ok()?;
    Some((id.parse().ok()?, number, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_order_and_the_end_comes_last() {
        let text = |word: &Up| serde_json::to_string(word).unwrap();
        let expect = |n: usize| Up::Expect { member: format!("node1/{n}.0") };
        let said = |n: usize| (format!("7/{n}"), text(&expect(n)));
        let taken = vec![said(10), ("7/end".into(), text(&Up::Lost)), said(9), ("x/1".into(), "{}".into())];
        let words: Vec<String> =
            sorted(taken).iter().map(|(id, word)| format!("{id} {}", text(word))).collect();
        assert_eq!(
            words,
            [9, 10]
                .map(|n| format!("7 {}", text(&expect(n))))
                .into_iter()
                .chain(["7 \"Lost\"".into()])
                .collect::<Vec<_>>()
        );
    }
}
