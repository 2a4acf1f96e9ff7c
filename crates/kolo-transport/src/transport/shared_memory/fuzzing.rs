//! Places announced by another process's messages, for `crate::fuzzing`. Whatever the messages announce,
//! the receiver reads only memory that both processes share.

use std::sync::{Arc, OnceLock};

use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::Rank;
use parking_lot::Mutex;

use super::inbox::Inbox;
use super::lane::WITHIN;
use super::mailbox::{Mailbox, Peers};
use super::sync::Ordering;
use super::{create_inbox, inbox_len};
use crate::memory::{Backing, Block, Mapping, Pool, SharedFile};
use crate::transport::interface::{NoOthers, Transport};
use crate::wait::WaitContext;

/// The announcement of a message: the file that holds it, and the following words of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Announcement {
    pub(crate) file: i32,
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) call: [u64; 2],
    pub(crate) within: [u64; 2],
}

/// Stands for the file of the sender's block, whose number differs in each process.
pub(crate) const BLOCK: i32 = 1 << 20;
/// Stands for the file of an inbox.
pub(crate) const INBOX: i32 = BLOCK + 1;
/// Number of bytes of the sender's block.
pub(crate) const BLOCK_LEN: usize = 3 * 4096;

/// The receiver's inbox and the memory of the sender, which is the same process.
struct Scene {
    inbox: Arc<Mapping>,
    inbox_file: SharedFile,
    block: Block,
    copies: Arc<Pool>,
}

impl Scene {
    fn new() -> Result<Scene, Error> {
        let (inbox, inbox_file) = create_inbox(2)?;
        let block = Pool::new(Backing::Shared).take(BLOCK_LEN)?;
        Ok(Scene { inbox: Arc::new(inbox), inbox_file, block, copies: Pool::new(Backing::Heap) })
    }

    fn file(&self, announced: i32) -> i32 {
        match announced {
            BLOCK => self.block.file().map_or(announced, |(file, _)| file),
            INBOX => self.inbox_file.number(),
            other => other,
        }
    }
}

/// Lets rank 0 receive `bytes` bytes from rank 1 and read all of them.
/// Panics if the message lies in a slot and extends beyond it.
pub(crate) fn receive(announced: &Announcement, bytes: usize, wait: &WaitContext<'_>) -> Result<u64, Error> {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    // There is one slot, so calls of several threads take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let scene = SCENE.get_or_init(|| Scene::new().expect("this process has room for two files"));
    let (inbox, pid) = (Inbox { pages: scene.inbox.clone() }, std::process::id());
    let slot = inbox.lane(Rank(1)).slot(0);
    slot.file.store(scene.file(announced.file), Ordering::Relaxed);
    for (word, value) in
        [(&slot.len, announced.len), (&slot.offset, announced.offset), (&slot.bytes, announced.bytes)]
    {
        word.store(value, Ordering::Relaxed);
    }
    let words = slot.call.iter().chain(&slot.within);
    words
        .zip(announced.call.iter().chain(&announced.within))
        .for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
    inbox.lane(Rank(1)).post(0, inbox.bell());

    let inboxes = [Some(scene.inbox.clone()), None];
    let (memory, liveness) = (Peers::of_processes(vec![pid, pid]), Liveness::new(2));
    let mut mailbox = Mailbox::new(Rank(0), &inboxes, memory, &scene.copies, &liveness)?;
    let message = mailbox.receive(Rank(1), bytes, wait, &mut NoOthers)?;
    let slots = scene.inbox.start().as_ptr() as usize..scene.inbox.start().as_ptr() as usize + inbox_len(2);
    assert!(bytes <= WITHIN || !slots.contains(&(message as usize)), "{bytes} bytes of a slot of {WITHIN}");
    // SAFETY: a message is readable until it is released, which this function tests.
    let message = unsafe { std::slice::from_raw_parts(message, bytes) };
    Ok(message.iter().map(|byte| u64::from(*byte)).sum())
}
