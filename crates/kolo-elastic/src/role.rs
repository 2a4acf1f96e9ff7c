//! What a coordinator does for its job: look for it, lead it, or follow the one that leads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::crew::Crew;
use super::follow::Follow;
use super::home::Home;
use super::lead::Lead;
use super::orders::{Departure, Order};
use super::roll::Terms;
use super::roster::Rules;
use super::seek::{Found, Seeker};
use super::words::Arrival;
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;

/// What a coordinator is and has, whoever leads.
pub(super) struct Own {
    pub(super) id: u64,
    pub(super) rules: Rules,
    pub(super) access: Access,
    pub(super) terms: Terms,
    /// Workers that are started here when the job begins.
    pub(super) starts: usize,
    /// What finds the others; `None` where there are none.
    pub(super) seeker: Option<Arc<Seeker>>,
}

/// What a coordinator does for the job.
pub(super) enum Role {
    /// Nothing yet: it looks for the others.
    Seeking(Receiver<Result<Found, Error>>),
    Leading(Box<Lead>),
    Following(Box<Follow>),
    /// None any more, and why not: members that come are told.
    Over(String),
}

impl Role {
    /// As the one that has found the job, or begun it.
    fn begin(found: Found, own: &Own, home: &mut Home) -> Role {
        let Found { peers, ip, node, roll, line } = found;
        home.node = Some(node);
        home.join(roll.founder);
        match line {
            Some(line) => Role::Following(Box::new(Follow::new(peers, ip, roll, line, home))),
            None => {
                let crew = Crew::new(peers, own.access.clone(), own.terms, roll);
                let mut lead = Lead::new(own.rules, own.access.clone(), ip, Some(crew), own.starts);
                lead.meet(home);
                Role::Leading(Box::new(lead))
            }
        }
    }

    /// A member has been started here.
    pub(super) fn expect(&mut self, member: &str) {
        match self {
            Role::Leading(lead) => lead.expect(member),
            Role::Following(follow) => follow.expect(member),
            Role::Seeking(_) | Role::Over(_) => {}
        }
    }

    /// A member that lives here has come to the meeting.
    pub(super) fn arrive(&mut self, member: &str, arrival: Arrival) {
        match self {
            Role::Leading(lead) => lead.arrive(member, arrival),
            Role::Following(follow) => follow.arrive(member, arrival),
            Role::Seeking(_) | Role::Over(_) => {}
        }
    }

    /// The process of a member that lives here has taken so much CPU time.
    pub(super) fn worked(&mut self, member: &str, total: Duration) {
        match self {
            Role::Leading(lead) => lead.worked(member, total),
            Role::Following(follow) => follow.worked(member, total),
            Role::Seeking(_) | Role::Over(_) => {}
        }
    }

    /// A member that lived here has ended.
    pub(super) fn gone(&mut self, member: &str, departure: &Departure) {
        match self {
            Role::Leading(lead) => lead.gone(member, departure),
            Role::Following(follow) => follow.gone(member, departure),
            Role::Seeking(_) | Role::Over(_) => {}
        }
    }

    /// The work of the members that live here is done.
    pub(super) fn done(&mut self) {
        match self {
            Role::Leading(lead) => lead.crew.iter_mut().for_each(Crew::done),
            Role::Following(follow) => follow.done(),
            Role::Seeking(_) | Role::Over(_) => {}
        }
    }

    /// Nobody else will be started here.
    pub(super) fn close(&mut self) {
        if let Role::Leading(lead) = self {
            lead.close();
        }
    }

    /// Looks for the others once more: the one that led has gone before anything had begun.
    pub(super) fn seek(own: &Own, home: &Home) -> Role {
        match own.seeker.as_ref().map(Seeker::start) {
            Some(Ok(found)) => Role::Seeking(found),
            Some(Err(error)) => Role::end(home, error.to_string()),
            None => Role::end(home, "it has lost the others".into()),
        }
    }

    /// Does what is to be done now, and says what to do from now on.
    pub(super) fn look(self, own: &Own, home: &mut Home) -> Role {
        match self {
            Role::Seeking(found) => match found.try_recv() {
                Ok(Ok(found)) => Role::begin(found, own, home),
                Ok(Err(error)) => Role::end(home, error.to_string()),
                Err(TryRecvError::Empty) => Role::Seeking(found),
                Err(TryRecvError::Disconnected) => Role::end(home, "a thread has ended".into()),
            },
            Role::Leading(mut lead) => match lead.look(home) {
                Ok(()) => Role::Leading(lead),
                Err(why) => Role::end(home, why),
            },
            Role::Following(follow) => follow.look(own, home),
            Role::Over(why) => {
                home.refuse(&why);
                Role::Over(why)
            }
        }
    }

    /// This launcher cannot go on.
    pub(super) fn end(home: &Home, why: String) -> Role {
        log::info!("this launcher does not work together with others: {why}");
        home.order(Order::Lost { why: why.clone() });
        Role::Over(why)
    }
}
