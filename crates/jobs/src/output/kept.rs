//! Bytes that wait for their turn: in memory, or in the temporary file.

use super::PIECE;
use super::spill::{BLOCK, Spill};
use std::io;

/// Bytes in their order: first those in the file, then those in memory.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    blocks: Vec<u32>,
    /// How many bytes are in the blocks.
    spilled: u64,
    memory: Vec<u8>,
}

impl Kept {
    pub(crate) fn push(&mut self, bytes: &[u8], spill: &mut Spill) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Exact: the buffer of a job that writes little must not be larger than its output.
        if self.memory.is_empty() {
            self.memory.reserve_exact(bytes.len());
        }
        self.memory.extend_from_slice(bytes);
        spill.memory += bytes.len();
        let is_too_much = self.memory.len() > PIECE || spill.memory > spill.most;
        if !is_too_much {
            return Ok(());
        }
        self.move_out(spill)
    }

    /// Moves what is in memory to the file. After an error, the rest stays in memory.
    fn move_out(&mut self, spill: &mut Spill) -> io::Result<()> {
        let mut rest = &self.memory[..];
        while !rest.is_empty() {
            let within = (self.spilled % BLOCK as u64) as usize;
            let block = match self.blocks.last() {
                Some(&last) if within > 0 => last,
                _ => {
                    let block = spill.allocate()?;
                    self.blocks.push(block);
                    block
                }
            };
            let part = &rest[..rest.len().min(BLOCK - within)];
            if let Err(error) = spill.write(block, within, part) {
                let moved = self.memory.len() - rest.len();
                if within == 0 {
                    spill.free(self.blocks.pop());
                }
                self.memory.drain(..moved);
                spill.memory -= moved;
                return Err(error);
            }
            self.spilled += part.len() as u64;
            rest = &rest[part.len()..];
        }
        spill.memory -= self.memory.len();
        self.memory = Vec::new();
        Ok(())
    }

    /// Passes all bytes to `to`, and frees their memory and blocks.
    pub(crate) fn drain(mut self, spill: &mut Spill, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut answer = Ok(());
        if self.spilled > 0 {
            let mut piece = vec![0; BLOCK];
            for block in std::mem::take(&mut self.blocks) {
                let count = self.spilled.min(BLOCK as u64) as usize;
                self.spilled -= count as u64;
                answer =
                    answer.and_then(|()| spill.read(block, &mut piece[..count])).and_then(|()| to(&piece[..count]));
                spill.free(Some(block));
            }
        }
        spill.memory -= self.memory.len();
        answer.and_then(|()| if self.memory.is_empty() { Ok(()) } else { to(&self.memory) })
    }

    /// Frees memory and blocks, and drops the bytes.
    pub(crate) fn discard(self, spill: &mut Spill) {
        self.blocks.into_iter().for_each(|block| spill.free(Some(block)));
        spill.memory -= self.memory.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many writers of any sizes, in turn, within 1,000 bytes of memory: each gets its own bytes back.
    #[test]
    fn bytes_come_back_from_memory_and_file_in_their_order() {
        let place = tempfile::tempdir().expect("a directory");
        let mut spill = Spill::new(1000, place.path().to_owned());
        let mut random: u64 = 1;
        let mut next = |most: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % most
        };
        for _ in 0..5 {
            let mut all: Vec<(Kept, Vec<u8>)> = (0..20).map(|_| Default::default()).collect();
            for step in 0..400 {
                let length = if next(10) == 0 { next(200_000) } else { next(300) };
                let bytes: Vec<u8> = (0..length).map(|n| (n + step) as u8).collect();
                let (kept, expected) = &mut all[next(20)];
                kept.push(&bytes, &mut spill).expect("kept");
                expected.extend_from_slice(&bytes);
                assert!(spill.memory <= 1000 || spill.memory == 0, "{} bytes in memory", spill.memory);
            }
            for (kept, expected) in all {
                let mut found = Vec::new();
                let collect = |bytes: &[u8]| {
                    found.extend_from_slice(bytes);
                    Ok(())
                };
                kept.drain(&mut spill, collect).expect("read");
                assert!(found == expected, "{} bytes of {}", found.len(), expected.len());
            }
            assert_eq!((spill.memory, spill.blocks_in_use()), (0, 0));
        }
        assert_eq!(std::fs::read_dir(place.path()).expect("the directory").count(), 0, "the file has no name");
    }

    #[test]
    fn bytes_stay_in_memory_when_the_file_cannot_be_made() {
        let mut spill = Spill::new(10, "/no/such/directory".into());
        let mut kept = Kept::default();
        kept.push(b"0123456789", &mut spill).expect("in memory");
        kept.push(b"abc", &mut spill).expect_err("no file");
        let mut found = Vec::new();
        kept.drain(&mut spill, |bytes| {
            found.extend_from_slice(bytes);
            Ok(())
        })
        .expect("from memory");
        assert_eq!((&found[..], spill.memory), (&b"0123456789abc"[..], 0));
    }
}
