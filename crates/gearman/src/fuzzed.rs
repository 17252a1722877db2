//! What must hold for any bytes from a server: for the fuzz target `gearman`, and for the test of its seeds.

use crate::cipher::Envelope;
use crate::monitoring::Check;
use crate::packet::{Decoder, From, encode};
use crate::record::{Record, Request};

/// Reads the bytes as all that a server sends. The first byte is the size of the pieces in which they come.
///
/// # Panics
/// If something does not hold.
pub fn all(bytes: &[u8]) {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    let mut decoder = Decoder::new(From::Server, 1 << 16);
    let mut written = Vec::new();
    let mut is_broken = false;
    for piece in bytes.chunks(usize::from(size).max(1)) {
        decoder.push(piece);
        while !is_broken {
            match decoder.next() {
                Ok(Some(packet)) => {
                    let arguments: Vec<&[u8]> = packet.arguments.iter().map(Vec::as_slice).collect();
                    let before = written.len();
                    encode(From::Server, packet.kind, &arguments, &mut written);
                    // A type without arguments may come with a body, which the decoder drops: its length differs then.
                    if arguments.is_empty() {
                        written.truncate(before);
                        is_broken = true;
                    }
                }
                Ok(None) => break,
                Err(_) => is_broken = true,
            }
        }
    }
    assert!(bytes.starts_with(&written), "a packet that is written again has the same bytes");
    let _ = Check::parse(bytes);
    for envelope in [Envelope::plain(), Envelope::with_key(b"key")] {
        if let Some(opened) = envelope.open(bytes) {
            let again = envelope.open(&envelope.seal(&opened));
            assert_eq!(again, Some(opened));
        }
    }
    let request = Request::parse(bytes);
    assert!(bytes.ends_with(&request.line));
    if let Some(record) = Record::parse(bytes) {
        let again = Record::parse(&record.to_reply()).expect("a record");
        assert_eq!((again.out, again.err), (record.out, record.err));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// The seeds, and each with bytes changed at random.
    #[test]
    fn seeds_and_their_neighbours_hold() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/gearman");
        let mut random: u64 = 1;
        let mut next = |most: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % most
        };
        let mut count = 0;
        for entry in fs::read_dir(place).expect("seeds") {
            let seed = fs::read(entry.expect("a file").path()).expect("a seed");
            all(&seed);
            for _ in 0..2000 {
                let mut bytes = seed.clone();
                for _ in 0..=next(4) {
                    let at = next(bytes.len());
                    match next(3) {
                        0 => bytes[at] = next(256) as u8,
                        1 => bytes.truncate(at.max(1)),
                        _ => bytes.insert(at, next(256) as u8),
                    }
                }
                all(&bytes);
                count += 1;
            }
        }
        assert!(count >= 10_000, "{count} inputs");
    }
}
