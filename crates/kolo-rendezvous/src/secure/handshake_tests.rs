use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::*;

const TEXT: &str = "a token for the tests";

fn access(text: &str, encrypt: bool) -> Access {
    Access { token: Some(Token::new(text).unwrap()), encrypt }
}

type Called = Result<Option<Session>, CallError>;
type Answered = Result<(Vec<u8>, Option<Session>), Refusal>;

/// One handshake, both sides; and what the caller said.
fn meet(caller: (&Access, Purpose), listener: (&Access, Purpose)) -> (Called, Answered, Vec<u8>) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder { stream: theirs, said: said.clone() };
    let (called, answered) = std::thread::scope(|scope| {
        let calling = scope.spawn(move || {
            let mut stream = recorder;
            call(&mut stream, caller.0, caller.1, b"me")
        });
        let mut stream = ours;
        let answered = answer(&mut stream, listener.0, listener.1).map(|heard| {
            let identity = heard.identity.clone();
            (identity, heard.welcome(&mut stream).unwrap())
        });
        drop(stream);
        (calling.join().unwrap(), answered)
    });
    let said = said.lock().unwrap().clone();
    (called, answered, said)
}

struct Recorder {
    stream: UnixStream,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Read for Recorder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.lock().unwrap().extend(bytes);
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Both ends of a session.
pub fn sessions() -> (Session, Session) {
    let access = access(TEXT, true);
    let (called, answered, _) = meet((&access, Purpose::Data), (&access, Purpose::Data));
    (called.unwrap().unwrap(), answered.unwrap().1.unwrap())
}

#[test]
fn the_caller_is_known_and_sealed_where_it_should_be() {
    let (open, proved, sealed) = (Access::default(), access(TEXT, false), access(TEXT, true));
    for (access, purpose, keys) in [
        (&open, Purpose::Store, false),
        (&open, Purpose::Data, false),
        (&proved, Purpose::Store, true),
        (&proved, Purpose::Data, false),
        (&sealed, Purpose::Data, true),
    ] {
        let (called, answered, _) = meet((access, purpose), (access, purpose));
        let (identity, session) = answered.unwrap();
        assert_eq!(identity, b"me");
        assert_eq!((called.unwrap().is_some(), session.is_some()), (keys, keys), "{access:?} {purpose:?}");
    }
}

#[test]
fn both_sides_learn_why_not() {
    let (open, proved, sealed) = (Access::default(), access(TEXT, false), access(TEXT, true));
    let other = access("another token than that", false);
    use Purpose::{Data, Store};
    for (caller, listener, reason) in [
        ((&open, Store), (&proved, Store), Refusal::TokenMissing),
        ((&proved, Store), (&open, Store), Refusal::TokenUnknown),
        ((&other, Store), (&proved, Store), Refusal::TokenWrong),
        ((&other, Data), (&proved, Data), Refusal::TokenWrong),
        ((&proved, Data), (&sealed, Data), Refusal::Encryption),
        ((&proved, Data), (&proved, Store), Refusal::Purpose),
        ((&open, Data), (&open, Store), Refusal::Purpose),
    ] {
        let (called, answered, _) = meet(caller, listener);
        assert_eq!(answered.err(), Some(reason));
        // A byte left unread can make the kernel drop the answer; a listener reads on before it closes.
        let error = called.err().unwrap();
        let told = matches!(error, CallError::Refused(told) if told == reason);
        assert!(told || matches!(error, CallError::Broken(_)), "{error}");
    }
}

#[test]
fn who_repeats_a_call_is_not_let_in() {
    let access = access(TEXT, true);
    let (called, answered, said) = meet((&access, Purpose::Store), (&access, Purpose::Store));
    assert!(called.is_ok() && answered.is_ok());
    let (mut theirs, mut ours) = UnixStream::pair().unwrap();
    theirs.write_all(&said).unwrap();
    assert_eq!(answer(&mut ours, &access, Purpose::Store).err(), Some(Refusal::TokenWrong));
}

#[test]
fn every_changed_bit_of_a_call_is_noticed() {
    let access = access(TEXT, true);
    let opening = Opening { purpose: Purpose::Data, mode: Mode::Sealed }.encode();
    let token = access.token.as_ref().unwrap();
    let mut first = opening.to_vec();
    first.extend(framed(&next_message(&mut initiator(token, &opening, None)).unwrap()));
    for bit in 0..first.len() * 8 {
        let mut changed = first.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (mut theirs, mut ours) = UnixStream::pair().unwrap();
        theirs.write_all(&changed).unwrap();
        drop(theirs);
        assert!(answer(&mut ours, &access, Purpose::Data).is_err(), "bit {bit}");
    }
}

#[test]
fn a_listener_that_does_not_know_the_token_is_no_listener() {
    let (theirs, mut ours) = UnixStream::pair().unwrap();
    let mut theirs = theirs;
    let calling =
        std::thread::spawn(move || call(&mut theirs, &access(TEXT, false), Purpose::Data, b"me").err());
    // A made-up key and tag in place of message 2.
    ours.write_all(&framed(&[7; 48])).unwrap();
    assert!(matches!(calling.join().unwrap(), Some(CallError::Impostor)));
}
