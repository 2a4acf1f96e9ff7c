use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

const TEXT: &str = "a token for the tests";

fn access(text: &str, encrypt: bool) -> Access {
    Access { token: Some(Token::new(text).unwrap()), encrypt }
}

type Initiated = Result<Option<Session>, HandshakeError>;
type Responded = Result<(Vec<u8>, Option<Session>), RejectReason>;

/// Runs both sides of one handshake. Also returns the initiator's bytes.
fn shake_hands(
    initiator: (&Access, Protocol),
    responder: (&Access, Protocol),
) -> (Initiated, Responded, Vec<u8>) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder { stream: theirs, sent: sent.clone() };
    let (called, answered) = std::thread::scope(|scope| {
        let calling = scope.spawn(move || {
            let mut stream = recorder;
            initiate(&mut stream, initiator.0, initiator.1, b"me")
        });
        let mut stream = ours;
        let answered = respond(&mut stream, responder.0, responder.1).map(|peer| {
            let identity = peer.identity.clone();
            (identity, peer.accept(&mut stream).unwrap())
        });
        drop(stream);
        (calling.join().unwrap(), answered)
    });
    let sent = sent.lock().clone();
    (called, answered, sent)
}

struct Recorder {
    stream: UnixStream,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Read for Recorder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.lock().extend(bytes);
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns both ends of a session.
pub fn sessions() -> (Session, Session) {
    let access = access(TEXT, true);
    let (called, answered, _) = shake_hands((&access, Protocol::Data), (&access, Protocol::Data));
    (called.unwrap().unwrap(), answered.unwrap().1.unwrap())
}

#[test]
fn the_initiator_is_known_and_the_connection_sealed_where_it_should_be() {
    let (open, proved, sealed) = (Access::default(), access(TEXT, false), access(TEXT, true));
    for (access, protocol, keys) in [
        (&open, Protocol::Store, false),
        (&open, Protocol::Data, false),
        (&proved, Protocol::Store, true),
        (&proved, Protocol::Data, false),
        (&sealed, Protocol::Data, true),
    ] {
        let (called, answered, _) = shake_hands((access, protocol), (access, protocol));
        let (identity, session) = answered.unwrap();
        assert_eq!(identity, b"me");
        assert_eq!((called.unwrap().is_some(), session.is_some()), (keys, keys), "{access:?} {protocol:?}");
    }
}

#[test]
fn both_sides_learn_the_reason_of_a_rejection() {
    let (open, proved, sealed) = (Access::default(), access(TEXT, false), access(TEXT, true));
    let other = access("another token than that", false);
    use Protocol::{Data, Store};
    for (initiator, responder, reason) in [
        ((&open, Store), (&proved, Store), RejectReason::TokenMissing),
        ((&proved, Store), (&open, Store), RejectReason::TokenUnknown),
        ((&other, Store), (&proved, Store), RejectReason::TokenWrong),
        ((&other, Data), (&proved, Data), RejectReason::TokenWrong),
        ((&proved, Data), (&sealed, Data), RejectReason::Encryption),
        ((&proved, Data), (&proved, Store), RejectReason::Protocol),
        ((&open, Data), (&open, Store), RejectReason::Protocol),
    ] {
        let (called, answered, _) = shake_hands(initiator, responder);
        assert_eq!(answered.err(), Some(reason));
        // Unread bytes can make the kernel drop the answer; a responder reads on before it closes.
        let error = called.err().unwrap();
        let rejected = matches!(error, HandshakeError::Rejected(code) if code == reason);
        assert!(rejected || matches!(error, HandshakeError::Broken(_)), "{error}");
    }
}

#[test]
fn a_replayed_handshake_is_rejected() {
    let access = access(TEXT, true);
    let (called, answered, sent) = shake_hands((&access, Protocol::Store), (&access, Protocol::Store));
    assert!(called.is_ok() && answered.is_ok());
    let (mut theirs, mut ours) = UnixStream::pair().unwrap();
    theirs.write_all(&sent).unwrap();
    assert_eq!(respond(&mut ours, &access, Protocol::Store).err(), Some(RejectReason::TokenWrong));
}

#[test]
fn every_changed_bit_of_an_opening_is_noticed() {
    let access = access(TEXT, true);
    let opening = Opening { protocol: Protocol::Data, protection: Protection::Sealed }.encode();
    let token = access.token.as_ref().unwrap();
    let mut first = opening.to_vec();
    first.extend(framed(&next_message(&mut initiator(token, &opening, None)).unwrap()));
    for bit in 0..first.len() * 8 {
        let mut changed = first.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (mut theirs, mut ours) = UnixStream::pair().unwrap();
        theirs.write_all(&changed).unwrap();
        drop(theirs);
        assert!(respond(&mut ours, &access, Protocol::Data).is_err(), "bit {bit}");
    }
}

#[test]
fn a_responder_that_does_not_know_the_token_is_an_impostor() {
    let (theirs, mut ours) = UnixStream::pair().unwrap();
    let mut theirs = theirs;
    let calling =
        std::thread::spawn(move || initiate(&mut theirs, &access(TEXT, false), Protocol::Data, b"me").err());
    // An invented key and tag in place of message 2.
    ours.write_all(&framed(&[7; 48])).unwrap();
    assert!(matches!(calling.join().unwrap(), Some(HandshakeError::Impostor)));
}
