//! A coordinator that does not lead: passes on what its own members say, hands them the answers, and knows enough to lead when
//! those before it are gone.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use super::crew::{Crew, ask, set};
use super::home::Home;
use super::lead::Lead;
use super::line::{Line, SILENCE};
use super::node_of;
use super::orders::{Departure, Order};
use super::role::{Own, Role};
use super::roll::{Heir, Peer, Roll};
use super::seek::welcome;
use super::talk::{self, Down, Formed, Hello, Up};
use super::words::Arrival;
use kolo_rendezvous::Error;
use kolo_rendezvous::store::Server;

/// How long a launcher may take to answer whether it is there.
const KNOCK: Duration = Duration::from_secs(1);
/// How long the next one that leads may take to answer: it may learn later than this one that it does.
const TAKEOVER: Duration = SILENCE.saturating_mul(2);

/// See the module's text.
pub(super) struct Follow {
    /// Where others find this launcher, and come to when it leads.
    peers: Server,
    /// Its host, as others reach it.
    ip: IpAddr,
    roll: Roll,
    way: Way,
}

/// To the one that leads.
enum Way {
    Open(Line),
    /// The last one is gone, and the next one has not answered yet.
    Opening(Receiver<Result<Line, Error>>),
}

impl Follow {
    /// After the first welcome.
    pub(super) fn new(peers: Server, ip: IpAddr, roll: Roll, line: Line, home: &Home) -> Follow {
        tell_all(&line, home);
        Follow { peers, ip, roll, way: Way::Open(line) }
    }

    pub(super) fn expect(&self, member: &str) {
        self.say(Up::Expect { member: member.into() });
    }

    pub(super) fn arrive(&self, member: &str, arrival: Arrival) {
        self.say(Up::Arrival { member: member.into(), arrival });
    }

    pub(super) fn worked(&self, member: &str, total: Duration) {
        self.say(Up::Worked { member: member.into(), total });
    }

    pub(super) fn gone(&self, member: &str, departure: &Departure) {
        self.say(Up::Gone { member: member.into(), departure: departure.clone() });
    }

    /// The work of the members that live here is done.
    pub(super) fn done(&self) {
        self.say(Up::Done);
    }

    /// The launcher ends in good order.
    pub(super) fn bye(&self) {
        self.say(Up::Bye);
    }

    /// What is said while no line is open is told when one is.
    fn say(&self, word: Up) {
        if let Way::Open(line) = &self.way {
            line.say(word);
        }
    }

    /// Does what the one that leads says, and looks for the next one if it is gone.
    pub(super) fn look(mut self, own: &Own, home: &mut Home) -> Role {
        match &self.way {
            Way::Open(line) => {
                while let Some(heard) = line.heard() {
                    match heard {
                        Ok(Down::Roll(roll)) => {
                            set(&self.peers, talk::ROLL, &roll);
                            home.began = roll.began;
                            self.roll = roll;
                        }
                        Ok(Down::Refused { why }) => return Role::end(home, format!("the job {why}")),
                        Ok(word) => obey(word, home),
                        Err(error) => return self.mourn(own, home, &error),
                    }
                }
            }
            Way::Opening(line) => match line.try_recv() {
                Ok(Ok(line)) => {
                    tell_all(&line, home);
                    self.way = Way::Open(line);
                }
                // A refusal is final.
                Ok(Err(Error::Invalid(why))) => return Role::end(home, why),
                Ok(Err(error)) => return self.mourn(own, home, &error),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Role::end(home, "a thread has ended".into()),
            },
        }
        Role::Following(Box::new(self))
    }

    /// The one that leads is not heard of any more.
    fn mourn(mut self, own: &Own, home: &mut Home, error: &Error) -> Role {
        let Some(last) = self.roll.leader().cloned() else { return Role::end(home, error.to_string()) };
        log::info!("the leading launcher, at {}, is lost: {error}", last.address);
        if ask(last.address, &own.access, KNOCK).is_some_and(|roll| roll.founder == self.roll.founder) {
            let why = format!(
                "it was cut off from the one that leads, at {}, which goes on: {error}",
                last.address
            );
            return Role::end(home, why);
        }
        if home.formed.generation == 0
            && own.seeker.as_ref().is_some_and(|seeker| seeker.nodes.node.is_some())
        {
            // The first node begins the job, and may come again. Where no member waits the program is not elastic, and may be on
            // its way.
            return match home.members.values().any(Option::is_some) {
                true => Role::seek(own, home),
                false => Role::end(home, "the first node has gone before anything had begun".into()),
            };
        }
        // If it only stands still, its generation does not end by itself.
        home.change(home.formed.generation);
        match self.roll.succeed(own.id) {
            Heir::Me => {
                log::info!("this launcher leads now");
                let members = &home.formed.members;
                let crew = Crew::inherit(self.peers, own.access.clone(), own.terms, self.roll, members);
                Role::Leading(Box::new(Lead::inherit(own.rules, own.access.clone(), self.ip, crew, home)))
            }
            Heir::Other(next) => match self.reopen(&next, own, home) {
                Ok(line) => {
                    self.way = Way::Opening(line);
                    Role::Following(Box::new(self))
                }
                Err(error) => Role::end(home, error.to_string()),
            },
        }
    }

    /// Comes to the next one that leads, by a thread of its own.
    fn reopen(&self, next: &Peer, own: &Own, home: &Home) -> Result<Receiver<Result<Line, Error>>, Error> {
        let bound = self.peers.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        let address = SocketAddr::from((self.ip, bound.port()));
        let hello = Hello { address, node: home.node, starts: 0, back: Some(home.formed.clone()) };
        let (to, id, access) = (next.address, own.id, own.access.clone());
        let (answer, line) = mpsc::channel();
        let work = move || {
            let line = Line::open(to, id, &access, SILENCE).and_then(|line| {
                line.say(Up::Hello(hello));
                welcome(&line, TAKEOVER).map(|_| line)
            });
            // Nobody waits any more when the coordinator has ended.
            let _ = answer.send(line);
        };
        let thread = std::thread::Builder::new().name("kolo-line".into()).spawn(work);
        thread.map(|_| line).map_err(|cause| Error::system("cannot start a thread", cause))
    }
}

/// Says all that is known of this node's members, to one that leads and does not know.
fn tell_all(line: &Line, home: &Home) {
    let here = |member: &&String| node_of(member) == home.node;
    for member in home.formed.members.iter().filter(here) {
        if !home.members.contains_key(member) {
            line.say(Up::Gone { member: member.clone(), departure: Departure::Well });
        }
    }
    for (member, waits) in &home.members {
        line.say(Up::Expect { member: member.clone() });
        if let Some(arrival) = waits.clone() {
            line.say(Up::Arrival { member: member.clone(), arrival });
        }
    }
    line.say(Up::Told);
}

fn obey(word: Down, home: &mut Home) {
    match word {
        Down::Formed(Formed { generation, .. }) if generation <= home.formed.generation => {}
        Down::Formed(formed) => home.form(formed),
        Down::Seat { member, number, seat } => home.seat(&member, number, &seat),
        Down::Change { generation } => home.change(generation),
        Down::Evict { member } => home.order(Order::Evict { member }),
        Down::TooFew { present } => home.order(Order::TooFew { present }),
        Down::Elsewhere { members } => home.elsewhere = members,
        Down::Welcome { .. } | Down::Roll(_) | Down::Refused { .. } => {}
    }
}
