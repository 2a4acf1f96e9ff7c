use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fingerprint::{Call, CollectiveKind, Fingerprint};
use crate::memory::{Backing, Buffer, Pool};
use crate::transport::interface::{NoOthers, Transport};
use crate::transport::tcp::connections::Tcp;
use crate::wait::WaitContext;
use crate::wait::WaitMode;
use kolo_rendezvous::secure::{Access, Protocol, Session, Token, handshake};
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::{DType, Op, Rank};

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Creates both ends of an encrypted session.
fn sessions() -> (Session, Session) {
    let access = Access { token: Some(Token::new("a token for the tests").unwrap()), encrypt: true };
    let (mut theirs, mut ours) = connected();
    std::thread::scope(|scope| {
        let calling =
            scope.spawn(|| handshake::initiate(&mut theirs, &access, Protocol::Data, b"me").unwrap());
        let received = handshake::respond(&mut ours, &access, Protocol::Data).ok().unwrap();
        let answered = received.accept(&mut ours).unwrap();
        (calling.join().unwrap().unwrap(), answered.unwrap())
    })
}

fn sealed() -> (Channel, Channel) {
    let ((one, other), (keys, other_keys)) = (connected(), sessions());
    (Channel::new(one, Some(keys)), Channel::new(other, Some(other_keys)))
}

/// Returns bytes that differ by position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256 * 13) as u8).collect()
}

#[test]
fn bytes_arrive_whatever_the_sizes_of_writes_and_reads() {
    let lens = [0, 1, 24, 65_518, 65_519, 65_520, 300_000];
    for read_at_once in [1000, 65_535, 65_536, 1 << 20] {
        let (mut one, mut other) = sealed();
        let bytes: Vec<u8> = lens.iter().flat_map(|len| pattern(*len)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| lens.iter().for_each(|len| one.write_all(&pattern(*len)).unwrap()));
            let (mut seen, mut buffer) = (Vec::<u8>::new(), vec![0; read_at_once]);
            while seen.len() < bytes.len() {
                let count = other.read(&mut buffer).unwrap();
                assert!(count > 0);
                seen.extend(&buffer[..count]);
            }
            assert!(seen == bytes);
        });
    }
}

#[test]
fn a_write_that_would_block_goes_on_with_the_same_bytes() {
    let (mut one, mut other) = sealed();
    one.stream().set_nonblocking(true).unwrap();
    let bytes = &pattern(20 << 20);
    // The reader begins once a write would have blocked. However slow the writer is, the
    // connection's buffers are full by then.
    let (full, begin) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Without a sender every write went through: the assertion below tells.
            let _ = begin.recv();
            let mut seen = vec![0; bytes.len()];
            other.read_exact(&mut seen).unwrap();
            assert!(seen == *bytes);
        });
        let (mut sent, mut blocked) = (0, 0);
        while sent < bytes.len() {
            let (header, rest) = bytes[sent..].split_at(24.min(bytes.len() - sent));
            match one.write_vectored(&[IoSlice::new(header), IoSlice::new(rest)]) {
                Ok(count) => sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    blocked += 1;
                    let _ = full.try_send(());
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => panic!("{e}"),
            }
        }
        drop(full);
        assert!(blocked > 0);
    });
}

/// Forwards bytes from one stream to the other, and flips one bit.
fn flip(mut from: TcpStream, mut to: TcpStream, position: usize) {
    let (mut bytes, mut passed) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(byte) = position.checked_sub(passed).and_then(|at| bytes[..count].get_mut(at)) {
            *byte ^= 4;
        }
        passed += count;
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn a_flipped_bit_on_the_way_is_an_error_that_names_the_peer() {
    // Positions in a record's length, in its bytes, and far into a long message.
    for position in [0, 1, 30, 100_000] {
        let ((left, from), (to, right), (keys, other_keys)) = (connected(), connected(), sessions());
        let proxy = std::thread::spawn(move || flip(from, to, position));
        let liveness = Arc::new(Liveness::new(2));
        let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::U8);
        let call =
            Fingerprint::new(&Call { kind, op, root: None, readers: None, dtype, elements: 1, algorithm: 0 });
        let (members, timeout) = ([Rank(0), Rank(1)], Duration::from_secs(2));
        let wait =
            |here| WaitContext::new(Rank(here), &members, call, WaitMode::Blocking, timeout, &liveness);
        let mut sender =
            Tcp::new(vec![Vec::new(), vec![Channel::new(left, Some(keys))]], 2, Duration::ZERO, &liveness)
                .unwrap();
        let mut receiver = Tcp::new(
            vec![vec![Channel::new(right, Some(other_keys))], Vec::new()],
            2,
            Duration::ZERO,
            &liveness,
        )
        .unwrap();
        let mut buffer: Buffer<u8> = Buffer::zeroed(&Pool::new(Backing::Heap), 200_000).unwrap();
        let memory = buffer.erased();
        let segment = memory.segment(0, 200_000, 1);
        sender.send(Rank(1), segment, false, &wait(0), &mut NoOthers).unwrap();
        sender.settle(&wait(0), &mut NoOthers).unwrap();
        let mut into = vec![0u8; 200_000];
        // SAFETY: as long as the message.
        let received =
            unsafe { receiver.receive_into(Rank(0), into.as_mut_ptr(), into.len(), &wait(1), &mut NoOthers) };
        let error = received.unwrap_err();
        // A changed length may also make the receiver wait for bytes that never come.
        let noticed = matches!(&error, Error::Untrusted { rank: Rank(0), .. });
        let waited = position < 2 && matches!(&error, Error::Timeout { rank: Rank(0), .. });
        assert!(noticed || waited, "at {position}: {error}");
        drop((sender, receiver));
        proxy.join().unwrap();
    }
}
