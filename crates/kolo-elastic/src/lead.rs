//! The coordinator that leads: hears who comes and who has ended on all nodes, and forms generations.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::crew::{Crew, News};
use super::home::Home;
use super::node_of;
use super::orders::{Departure, Order};
use super::roster::{Guest, Roster, Rules, Verdict};
use super::talk::{Down, Formed};
use super::words::{Arrival, Place, Seat};
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_schedule::Rank;

/// See the module's text.
pub(super) struct Lead {
    rules: Rules,
    access: Access,
    /// Where all members reach the stores of generations.
    ip: IpAddr,
    roster: Roster,
    /// The store of the generation that runs.
    store: Option<Server>,
    /// The other launchers, where there may be some.
    pub(super) crew: Option<Crew>,
    /// Workers that are started here when the job begins.
    starts: usize,
    /// Nobody else will be started here.
    closed: bool,
}

impl Lead {
    /// Of a job that begins.
    pub(super) fn new(rules: Rules, access: Access, ip: IpAddr, crew: Option<Crew>, starts: usize) -> Lead {
        let roster = Roster::new(rules, Instant::now());
        Lead { rules, access, ip, roster, store: None, crew, starts, closed: false }
    }

    /// Of a job that another one has led so far.
    pub(super) fn inherit(rules: Rules, access: Access, ip: IpAddr, crew: Crew, home: &Home) -> Lead {
        let now = Instant::now();
        let Formed { generation, members, .. } = &home.formed;
        let mut roster = Roster::resume(rules, *generation, members, "the leading launcher was lost", now);
        let nodes: BTreeSet<usize> = crew.roll.peers.iter().map(|peer| peer.node).collect();
        for member in
            members.iter().filter(|member| node_of(member).is_none_or(|node| !nodes.contains(&node)))
        {
            roster.gone(member, Some("was lost with its launcher"), now);
        }
        // Of those that live here it knows more than the last one.
        for member in members.iter().filter(|member| node_of(member) == home.node) {
            if !home.members.contains_key(member) {
                roster.gone(member, None, now);
            }
        }
        let (store, crew) = (None, Some(crew));
        let mut lead = Lead { rules, access, ip, roster, store, crew, starts: 0, closed: false };
        lead.meet(home);
        lead
    }

    /// Learns of the members that have come before it led.
    pub(super) fn meet(&mut self, home: &Home) {
        for (member, waits) in &home.members {
            self.roster.expect(member);
            waits.iter().for_each(|arrival| self.arrive(member, arrival.clone()));
        }
    }

    pub(super) fn expect(&mut self, member: &str) {
        self.roster.expect(member);
    }

    pub(super) fn arrive(&mut self, member: &str, arrival: Arrival) {
        let Arrival { number, reason, patience_ms, settled } = arrival;
        self.roster.arrive(member, number, reason, Instant::now());
        patience_ms.into_iter().for_each(|ms| self.roster.told(Duration::from_millis(ms)));
        if settled {
            self.roster.settled(member);
        }
    }

    pub(super) fn worked(&mut self, member: &str, total: Duration) {
        self.roster.worked(member, total, Instant::now());
    }

    /// Whether all members of the last generation have ended well.
    pub(super) fn is_over(&self) -> bool {
        self.roster.is_over()
    }

    /// Nobody else will be started here.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A member has gone. Those of its generation hear of it at once.
    pub(super) fn gone(&mut self, member: &str, departure: &Departure) {
        let failed = match departure {
            Departure::Well => None,
            Departure::Failed(how) => Some(how.as_str()),
        };
        let rank = self.roster.gone(member, failed, Instant::now());
        if let (Some(rank), Some(_), Some(store)) = (rank, failed, &self.store) {
            store.fail(Error::Died { rank: Rank(rank) });
        }
    }

    /// Does what follows from all that is known now. Says why if it may not lead any more.
    pub(super) fn look(&mut self, home: &mut Home) -> Result<(), String> {
        let now = Instant::now();
        let news = self.crew.as_mut().map_or_else(Vec::new, |crew| crew.look(now));
        news.into_iter().try_for_each(|news| self.note(news))?;
        if let Some(crew) = &mut self.crew {
            let started = crew.begin(self.starts);
            started.iter().for_each(|member| self.roster.expect(member));
            home.began = crew.roll.began;
        }
        self.count(home);
        // Other launchers may start more.
        if self.closed && self.crew.as_ref().is_none_or(Crew::is_empty) {
            self.roster.close();
        }
        if self.crew.as_ref().is_none_or(Crew::is_ready) {
            self.decide(home, now);
        }
        Ok(())
    }

    fn note(&mut self, news: News) -> Result<(), String> {
        match news {
            News::Expect { member } => self.expect(&member),
            News::Arrival { member, arrival } => self.arrive(&member, arrival),
            News::Worked { member, total } => self.worked(&member, total),
            News::Gone { member, departure } => self.gone(&member, &departure),
            News::Generation(generation) => self.roster.catch_up(generation),
            News::Lost { node, members } => {
                log::info!("the launcher of node {node} has gone, with {} members", members.len());
                let how = Departure::Failed("was lost with its launcher".into());
                members.iter().for_each(|member| self.gone(member, &how));
            }
            News::Deposed { address } => {
                return Err(format!(
                    "the others have gone on without this launcher; the one at {address} leads now"
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self, home: &mut Home) {
        let Some(crew) = &mut self.crew else { return };
        let members: BTreeSet<&str> = self.roster.members().collect();
        home.elsewhere = members.iter().filter(|member| !home.members.contains_key(**member)).count();
        crew.count(&members);
    }

    fn decide(&mut self, home: &mut Home, now: Instant) {
        match self.roster.decide(now) {
            Verdict::Wait => {}
            Verdict::Form { guests, reason } => self.form(home, &guests, reason),
            Verdict::Change => {
                let generation = self.roster.generation();
                home.change(generation);
                self.say_all(&Down::Change { generation });
            }
            Verdict::Evict(members) => {
                for member in members {
                    match self.crew.as_ref().and_then(|crew| crew.owner(&member)) {
                        Some(id) => self.say(id, &Down::Evict { member }),
                        None => home.order(Order::Evict { member }),
                    }
                }
            }
            Verdict::Refuse { guests, waited } => {
                let (present, min) = (guests.len(), self.rules.min);
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.seat(home, &guests, |rank| Seat::Refused { present, min, waited_ms, first: rank == 0 });
                home.order(Order::TooFew { present });
                self.say_all(&Down::TooFew { present });
            }
            Verdict::Orphan(guests) => self.seat(home, &guests, |_| Seat::Orphaned),
        }
    }

    fn form(&mut self, home: &mut Home, guests: &[Guest], reason: String) {
        let served = Server::start((self.ip, 0).into(), guests.len(), &self.access).and_then(|server| {
            let address = server.address().map_err(|cause| Error::system("cannot read an address", cause))?;
            Ok((SocketAddr::from((self.ip, address.port())), server))
        });
        let (store, server) = match served {
            Ok(served) => served,
            Err(error) => {
                log::error!("no generation can be formed: {error}");
                return self.seat(home, guests, |_| Seat::Failed { why: error.to_string() });
            }
        };
        // The last generation's store goes: none of its members is left in it.
        self.store = Some(server);
        let generation = self.roster.generation();
        let members: Vec<String> = guests.iter().map(|guest| guest.member.clone()).collect();
        // Before the seats: whoever leads next must know of a generation in which its members are.
        let formed = Formed { generation, members, reason: reason.clone() };
        self.say_all(&Down::Formed(formed.clone()));
        home.form(formed);
        self.seat(home, guests, |rank| {
            let local_rank =
                guests[..rank].iter().filter(|other| place(other) == place(&guests[rank])).count();
            let (world_size, reason) = (guests.len(), reason.clone());
            Seat::Taken(Place { generation, rank, world_size, local_rank, store, reason })
        });
    }

    /// Gives each guest its seat, by its place in the list.
    fn seat(&mut self, home: &mut Home, guests: &[Guest], seat: impl Fn(usize) -> Seat) {
        for (rank, guest) in guests.iter().enumerate() {
            let (member, number, seat) = (guest.member.clone(), guest.arrival, seat(rank));
            match self.crew.as_ref().and_then(|crew| crew.owner(&member)) {
                Some(id) => self.say(id, &Down::Seat { member, number, seat }),
                None => home.seat(&member, number, &seat),
            }
        }
    }

    fn say(&mut self, id: u64, word: &Down) {
        if let Some(crew) = &mut self.crew {
            crew.say(id, word);
        }
    }

    fn say_all(&mut self, word: &Down) {
        if let Some(crew) = &mut self.crew {
            crew.say_all(word);
        }
    }
}

/// The part of a member's name that those of one launcher share.
fn place(guest: &Guest) -> Option<&str> {
    guest.member.split('/').next()
}
