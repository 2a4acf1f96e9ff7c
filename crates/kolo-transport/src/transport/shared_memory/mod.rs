//! Transports of ranks that can read each other's memory: threads of one process, and processes of one host.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod inbox;
mod lane;
mod mailbox;
mod outbox;
mod sync;

use std::sync::Arc;

use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::Rank;
use serde::{Deserialize, Serialize};

use self::inbox::inbox_len;
use self::mailbox::{Mailbox, Peers};
use super::interface::Transport;
use super::kind::{Connecting, Connector, Distance, TransportKind};
use crate::memory::{Backing, Mapping, Pool, Purpose, SharedFile};

/// Memory of one process, between its threads.
pub static THREADS: TransportKind = TransportKind {
    name: "threads",
    about: "memory of one process, between its threads",
    reach: Distance::Process,
    backing: Backing::Heap,
    connector: |group| MailboxConnector::open(group, group.context.advertised.is_none()),
};

/// Memory that processes of one host share.
pub static SHM: TransportKind = TransportKind {
    name: "shm",
    about: "shared memory, between processes of one host",
    reach: Distance::Host,
    backing: Backing::Shared,
    connector: |group| MailboxConnector::open(group, group.context.advertised.is_some()),
};

/// Address of a rank's inbox: the process that holds it, and the file descriptor there.
#[derive(Serialize, Deserialize)]
struct InboxAddress {
    pid: u32,
    file: i32,
}

/// An inbox, until all peers have mapped it.
struct MailboxConnector<'a> {
    group: Connecting<'a>,
    own: Arc<Mapping>,
    /// File of the inbox: it must stay open until all peers have mapped it, and is not needed afterwards.
    file: SharedFile,
    /// The inboxes of the ranks within reach, and the processes of all ranks.
    inboxes: Vec<Option<Arc<Mapping>>>,
    pids: Vec<u32>,
}

impl<'a> MailboxConnector<'a> {
    fn open(group: &Connecting<'a>, leads_somewhere: bool) -> Result<Option<Box<dyn Connector + 'a>>, Error> {
        if !leads_somewhere {
            return Ok(None);
        }
        let (own, file) = create_inbox(group.world)?;
        let own = Arc::new(own);
        Ok(Some(Box::new(MailboxConnector {
            group: *group,
            own,
            file,
            inboxes: Vec::new(),
            pids: Vec::new(),
        })))
    }
}

impl Connector for MailboxConnector<'_> {
    fn address(&self) -> Result<String, Error> {
        let address = InboxAddress { pid: std::process::id(), file: self.file.number() };
        serde_json::to_string(&address)
            .map_err(|cause| Error::system("cannot write an inbox's address", cause))
    }

    fn prepare(&mut self, addresses: &[Option<String>]) -> Result<(), Error> {
        for (peer, address) in addresses.iter().enumerate() {
            let Some(address) = address else {
                self.inboxes.push(None);
                self.pids.push(0);
                continue;
            };
            let fail = |cause| Error::system(format!("rank {peer} has an unreadable inbox address"), cause);
            let InboxAddress { pid, file } = serde_json::from_str(address).map_err(fail)?;
            let inbox = match peer == self.group.rank.0 {
                true => self.own.clone(),
                false => {
                    let len = inbox_len(self.group.world);
                    let pages = SharedFile::map_of(pid, file, Purpose::Inbox, 0, len);
                    Arc::new(pages.map_err(|cause| cause.of_rank(Rank(peer)))?)
                }
            };
            self.inboxes.push(Some(inbox));
            self.pids.push(pid);
        }
        Ok(())
    }

    fn connect(mut self: Box<Self>, peers: &[Rank], _: usize) -> Result<Box<dyn Transport>, Error> {
        let Connecting { rank, context, liveness, .. } = self.group;
        for (index, inbox) in self.inboxes.iter_mut().enumerate() {
            if Rank(index) != rank && !peers.contains(&Rank(index)) {
                *inbox = None;
            }
        }
        let memory = match context.advertised {
            None => Peers::SameProcess,
            Some(_) => Peers::of_processes(self.pids),
        };
        Ok(Box::new(Mailbox::new(rank, &self.inboxes, memory, &context.copies, liveness)?))
    }
}

/// Creates an empty inbox and the file that others map.
fn create_inbox(world: usize) -> Result<(Mapping, SharedFile), Error> {
    let file = SharedFile::create(Purpose::Inbox)?;
    Ok((file.grow(0, inbox_len(world))?, file))
}

/// Creates the transports of `world` threads of this process, in rank order. All of them share `copies`.
pub fn connect_threads(
    world: usize,
    copies: &Arc<Pool>,
    liveness: &Liveness,
) -> Result<Vec<Box<dyn Transport>>, Error> {
    let inbox = |_| create_inbox(world).map(|(pages, _)| Some(Arc::new(pages)));
    let inboxes: Vec<Option<Arc<Mapping>>> = (0..world).map(inbox).collect::<Result<_, _>>()?;
    let mailbox = |rank| -> Result<Box<dyn Transport>, Error> {
        Ok(Box::new(Mailbox::new(Rank(rank), &inboxes, Peers::SameProcess, copies, liveness)?))
    };
    (0..world).map(mailbox).collect()
}

/// Decodes a peer's address, for `crate::fuzzing`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn decode_address_for_fuzzing(text: &str) {
    let _ = serde_json::from_str::<InboxAddress>(text);
}
