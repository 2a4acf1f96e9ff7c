//! The other launchers, as the one that leads sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::line::SILENCE;
use super::roll::{Roll, Terms};
use super::talk::{self, Down, Hello, Up};
use super::words::Arrival;
use super::{START, member_name, node_of};
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::{Server, get_once};

/// How long a launcher may take to answer whether it is there.
const KNOCK: Duration = Duration::from_secs(1);

/// See the module's text.
pub(super) struct Crew {
    /// Where the others are heard.
    peers: Server,
    access: Access,
    terms: Terms,
    pub(super) roll: Roll,
    hands: BTreeMap<u64, Hand>,
    since: Instant,
    /// When it last looked at what is new.
    looked: Instant,
}

/// One of them.
struct Hand {
    address: SocketAddr,
    node: usize,
    /// Workers that it starts when the job begins.
    starts: usize,
    members: BTreeSet<String>,
    /// It has said all that it had to say when it came.
    told: bool,
    /// Words said to it; `None` if it has not come yet.
    sent: Option<u64>,
    heard: Instant,
    /// What it has been told of members elsewhere.
    elsewhere: Option<usize>,
}

/// What another launcher has said, or what has become of it, for the roster.
pub(super) enum News {
    Expect {
        member: String,
    },
    Arrival {
        member: String,
        arrival: Arrival,
    },
    Worked {
        member: String,
        total: Duration,
    },
    Gone {
        member: String,
        departure: super::Departure,
    },
    /// It knows of this generation.
    Generation(u64),
    /// It has gone, and its members with it.
    Lost {
        node: usize,
        members: Vec<String>,
    },
    /// Others have gone on without this launcher.
    Deposed {
        address: SocketAddr,
    },
}

impl Crew {
    /// Of one that leads from the beginning.
    pub(super) fn new(peers: Server, access: Access, terms: Terms, roll: Roll) -> Crew {
        let (hands, now) = (BTreeMap::new(), Instant::now());
        let crew = Crew { peers, access, terms, roll, hands, since: now, looked: now };
        crew.show();
        crew
    }

    /// Of one that leads after another; those that are left come back by themselves. `members` are those of the last generation.
    pub(super) fn inherit(
        peers: Server,
        access: Access,
        terms: Terms,
        roll: Roll,
        members: &[String],
    ) -> Crew {
        let mut crew = Crew::new(peers, access, terms, roll);
        for peer in crew.roll.peers.iter().skip(1) {
            let members =
                members.iter().filter(|member| node_of(member) == Some(peer.node)).cloned().collect();
            let mut hand = Hand::new(peer.address, peer.node, 0);
            hand.members = members;
            // It may notice later than this one that the last one is gone.
            hand.heard += SILENCE;
            crew.hands.insert(peer.id, hand);
        }
        crew
    }

    /// Whether any are there.
    pub(super) fn is_empty(&self) -> bool {
        self.hands.is_empty()
    }

    /// Whether decisions can be made: as many as asked for are there, or have not come in time, and all have told what they know.
    pub(super) fn is_ready(&self) -> bool {
        let begun = self.roll.began.is_some() || self.since.elapsed() >= START;
        begun && self.hands.values().all(|hand| hand.told)
    }

    /// Begins the job if it is time; gives the workers that are started then, `own` of them by this launcher.
    pub(super) fn begin(&mut self, own: usize) -> Vec<String> {
        if !self.roll.begin(self.terms) {
            return Vec::new();
        }
        self.publish();
        let mut started: Vec<String> = self.hands.values_mut().flat_map(Hand::start).collect();
        started.extend(self.roll.leader().into_iter().flat_map(|leader| names(leader.node, own)));
        started
    }

    /// What is new among the others.
    pub(super) fn look(&mut self, now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        if now.saturating_duration_since(std::mem::replace(&mut self.looked, now)) > SILENCE / 3 {
            // This launcher has stood still itself, and what the others have said meanwhile is on its way.
            self.hands.values_mut().for_each(|hand| hand.heard = hand.heard.max(now));
        }
        for (id, word) in talk::sorted(self.peers.take(talk::IN, Duration::ZERO)) {
            self.hear(id, word, now, &mut news);
        }
        let silent = |hand: &Hand| now.saturating_duration_since(hand.heard) > SILENCE;
        let lost: Vec<u64> = self.hands.iter().filter(|(_, hand)| silent(hand)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.lose(id, &mut news));
        news
    }

    fn hear(&mut self, id: u64, word: Up, now: Instant, news: &mut Vec<News>) {
        if let Up::Hello(hello) = word {
            return self.greet(id, hello, now, news);
        }
        let Some(hand) = self.hands.get_mut(&id) else { return };
        hand.heard = hand.heard.max(now);
        match word {
            Up::Hello(_) | Up::Beat => {}
            Up::Told => hand.told = true,
            Up::Expect { member } => {
                hand.members.insert(member.clone());
                news.push(News::Expect { member });
            }
            Up::Arrival { member, arrival } => {
                hand.members.insert(member.clone());
                news.push(News::Arrival { member, arrival });
            }
            Up::Worked { member, total } => news.push(News::Worked { member, total }),
            Up::Gone { member, departure } => {
                hand.members.remove(&member);
                news.push(News::Gone { member, departure });
            }
            Up::Done => self.done(),
            Up::Bye => self.strike(id, news),
            Up::Lost => self.lose(id, news),
        }
    }

    fn greet(&mut self, id: u64, hello: Hello, now: Instant, news: &mut Vec<News>) {
        let Hello { address, node, starts, back } = hello;
        if let (Some(formed), Some(hand)) = (&back, self.hands.get_mut(&id)) {
            (hand.heard, hand.sent) = (now, Some(0));
            news.push(News::Generation(formed.generation));
            let node = hand.node;
            self.say(id, &Down::Welcome { node });
            return self.publish();
        }
        if self.roll.over && back.is_none() {
            // It looks elsewhere when nobody answers.
            return;
        }
        let admitted = match back {
            Some(_) => Err("has gone on without this launcher, which was not heard of for too long".into()),
            None => self.roll.admit(id, address, node, self.terms),
        };
        match admitted {
            Ok(node) => {
                let mut hand = Hand { sent: Some(0), ..Hand::new(address, node, starts) };
                if self.roll.began.is_some() {
                    news.extend(hand.start().into_iter().map(|member| News::Expect { member }));
                }
                self.hands.insert(id, hand);
                self.say(id, &Down::Welcome { node });
                self.publish();
            }
            Err(why) => self.refuse(id, why),
        }
    }

    /// The work is done: nobody is to come any more.
    pub(super) fn done(&mut self) {
        if !std::mem::replace(&mut self.roll.over, true) {
            self.publish();
        }
    }

    /// A launcher is not heard of any more. It may be this one that was away: then another one leads.
    fn lose(&mut self, id: u64, news: &mut Vec<News>) {
        let Some(address) = self.hands.get(&id).map(|hand| hand.address) else { return };
        if ask(address, &self.access, KNOCK)
            .is_some_and(|roll| roll.founder == self.roll.founder && roll.reign > self.roll.reign)
        {
            return news.push(News::Deposed { address });
        }
        self.refuse(id, "has gone on without this launcher, which was not heard of for too long".into());
        self.strike(id, news);
    }

    fn strike(&mut self, id: u64, news: &mut Vec<News>) {
        let Some(hand) = self.hands.remove(&id) else { return };
        self.roll.remove(id);
        self.publish();
        news.push(News::Lost { node: hand.node, members: hand.members.into_iter().collect() });
    }

    /// The launcher that has started a member.
    pub(super) fn owner(&self, member: &str) -> Option<u64> {
        self.hands.iter().find(|(_, hand)| hand.members.contains(member)).map(|(id, _)| *id)
    }

    pub(super) fn say(&mut self, id: u64, word: &Down) {
        let Some(sent) = self.hands.get_mut(&id).and_then(|hand| hand.sent.as_mut()) else { return };
        set(&self.peers, &talk::down(id, *sent), word);
        *sent += 1;
    }

    pub(super) fn say_all(&mut self, word: &Down) {
        let ids: Vec<u64> = self.hands.keys().copied().collect();
        ids.into_iter().for_each(|id| self.say(id, word));
    }

    fn refuse(&mut self, id: u64, why: String) {
        let number = self.hands.get(&id).and_then(|hand| hand.sent).unwrap_or(0);
        set(&self.peers, &talk::down(id, number), &Down::Refused { why });
    }

    /// Tells all that are here how many of these members live elsewhere than with them.
    pub(super) fn count(&mut self, members: &BTreeSet<&str>) {
        let mut news = Vec::new();
        for (id, hand) in self.hands.iter_mut().filter(|(_, hand)| hand.sent.is_some()) {
            let own = hand.members.iter().filter(|member| members.contains(member.as_str())).count();
            let elsewhere = members.len() - own;
            if hand.elsewhere.replace(elsewhere) != Some(elsewhere) {
                news.push((*id, elsewhere));
            }
        }
        for (id, members) in news {
            self.say(id, &Down::Elsewhere { members });
        }
    }

    /// Where whoever comes sees who is there.
    fn show(&self) {
        set(&self.peers, talk::ROLL, &self.roll);
    }

    fn publish(&mut self) {
        self.show();
        let word = Down::Roll(self.roll.clone());
        self.say_all(&word);
    }
}

impl Hand {
    fn new(address: SocketAddr, node: usize, starts: usize) -> Hand {
        let members = BTreeSet::new();
        Hand {
            address,
            node,
            starts,
            members,
            told: false,
            sent: None,
            heard: Instant::now(),
            elsewhere: None,
        }
    }

    /// Its first workers are started now; gives their names.
    fn start(&mut self) -> Vec<String> {
        let members: Vec<String> = names(self.node, self.starts).collect();
        self.members.extend(members.iter().cloned());
        members
    }
}

/// The first members of a node.
fn names(node: usize, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |local| member_name(node, local, 0))
}

/// Keeps a word in a launcher's store.
pub(super) fn set(peers: &Server, key: &str, word: &impl serde::Serialize) {
    let kept = serde_json::to_string(word).map_err(|error| error.to_string());
    if let Err(why) = kept.and_then(|text| peers.set(key, text)) {
        log::error!("the launcher cannot keep `{key}`: {why}");
    }
}

/// The launchers that live, as one of them says them.
pub(super) fn ask(address: SocketAddr, access: &Access, patience: Duration) -> Option<Roll> {
    let text = get_once(address, access, talk::ROLL, patience).ok()??;
    serde_json::from_str(&text).ok()
}
