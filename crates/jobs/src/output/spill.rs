//! The temporary file for output that is too much for memory.
//!
//! It has no name, so it is gone with this process, however that ends. It is made of blocks. A block belongs to one
//! stream of one job, and is used again when that stream has been written.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size of a block. A block that is not full takes no more space on the disk than its bytes need.
pub(crate) const BLOCK: usize = 64 * 1024;

pub(crate) struct Spill {
    file: Option<File>,
    /// Keeps a descriptor free for the file: jobs may take all others.
    pub(crate) reserve: Option<OwnedFd>,
    directory: PathBuf,
    /// Blocks that are free, below `end`.
    free: Vec<u32>,
    /// The number of blocks of the file.
    end: u32,
    /// How many bytes all streams have in memory.
    pub(crate) memory: usize,
    /// How many they may have.
    pub(crate) most: usize,
}

/// So much more than [`Spill::most`] is kept in memory when the file cannot take it. Jobs that write more are ended.
const RESERVE: usize = 16 << 20;

impl Spill {
    pub(crate) fn new(most: usize, directory: PathBuf) -> Self {
        Self { file: None, reserve: None, directory, free: Vec::new(), end: 0, memory: 0, most }
    }

    /// Whether memory is full, too, after the file has failed.
    pub(crate) fn is_full(&self) -> bool {
        self.memory > self.most.saturating_add(RESERVE)
    }

    /// A block that is free.
    pub(super) fn allocate(&mut self) -> io::Result<u32> {
        if self.file.is_none() {
            self.reserve = None;
            self.file = Some(self.make()?);
        }
        if let Some(block) = self.free.pop() {
            return Ok(block);
        }
        let block = self.end;
        self.end = block.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(block)
    }

    pub(super) fn write(&self, block: u32, within: usize, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, offset(block) + within as u64)
    }

    pub(super) fn read(&self, block: u32, bytes: &mut [u8]) -> io::Result<()> {
        self.file()?.read_exact_at(bytes, offset(block))
    }

    pub(super) fn free(&mut self, block: Option<u32>) {
        self.free.extend(block);
        if self.blocks_in_use() == 0 && self.end > 0 {
            // Frees the space on the disk. If that fails, it is used again.
            let _ = self.file.as_ref().map(|file| file.set_len(0));
            self.free = Vec::new();
            self.end = 0;
        }
    }

    pub(super) fn blocks_in_use(&self) -> usize {
        self.end as usize - self.free.len()
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes the file without a name (O_TMPFILE), or removes its name at once where the file system needs one.
    fn make(&self) -> io::Result<File> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let named = |error: io::Error| {
            let text = format!("cannot create a temporary file in {}: {error}", self.directory.display());
            io::Error::new(error.kind(), text)
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::open(&self.directory, flags | OFlags::TMPFILE, mode) {
            Ok(file) => {
                return Ok(file.into());
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(error) => return Err(named(error.into())),
        }
        loop {
            let name = format!("forkless-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = self.directory.join(name);
            match rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
                Ok(file) => {
                    std::fs::remove_file(&path).map_err(named)?;
                    return Ok(file.into());
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(named(error.into())),
            }
        }
    }
}

fn offset(block: u32) -> u64 {
    u64::from(block) * BLOCK as u64
}
