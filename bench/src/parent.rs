//! Gives this process the memory, mappings and open files of a condition.
//!
//! A [`Parent`] frees everything on drop, so that each condition starts from the same state.

use std::{fs, io, os::fd::OwnedFd, ptr};

use anyhow::{Context, Result, bail};
use rustix::{
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};

use super::{condition::Condition, faulting::Faulting, units::mebibytes};

/// The resources that bring this process into a [`Condition`], freed on drop.
pub(crate) struct Parent {
    like: Condition,
    _memory: Option<Region>,
    _mappings: Option<Region>,
    _files: Vec<OwnedFd>,
    _faulting: Option<Faulting>,
}

impl Parent {
    /// Brings the process into the condition.
    ///
    /// # Errors
    /// If the kernel refuses the memory, the mappings or the files.
    pub(crate) fn become_like(condition: &Condition) -> Result<Self> {
        let memory = match condition.parent_mib {
            0 => None,
            mib => Some(Region::touched(mib << 20).with_context(|| format!("cannot allocate {}", mebibytes(mib)))?),
        };
        let mappings = match condition.mappings {
            0 => None,
            count => Some(Region::striped(count).with_context(|| format!("cannot create {count} mappings"))?),
        };
        let files = open_until(condition.fds, condition.close_on_exec)?;
        let faulting = match condition.faulting {
            0 => None,
            count => Some(Faulting::start(count)?),
        };
        Ok(Self { like: *condition, _memory: memory, _mappings: mappings, _files: files, _faulting: faulting })
    }
}

impl Parent {
    /// Whether these resources are right for another condition, too.
    pub(crate) fn is_for(&self, condition: &Condition) -> bool {
        let Condition { parent_mib, mappings, fds, close_on_exec, faulting, .. } = self.like;
        *condition == Condition { parent_mib, mappings, fds, close_on_exec, faulting, ..*condition }
    }
}

/// Opens sockets until the process has `count` open files.
///
/// Close-on-exec sockets are typical of servers. All are distinct, because a duplicate would stay in the CPU cache. The kernel uses
/// the lowest free numbers first, so a pipe created later gets high numbers.
fn open_until(count: u64, close_on_exec: bool) -> Result<Vec<OwnedFd>> {
    let mut files = Vec::new();
    // Do not count the descriptor of the directory itself.
    let open = fs::read_dir("/proc/self/fd").context("cannot read /proc/self/fd")?.count() as u64 - 1;
    let flags = if close_on_exec { SocketFlags::CLOEXEC } else { SocketFlags::empty() };
    for _ in open..count {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .with_context(|| format!("cannot open {count} files"))?;
        files.push(socket);
    }
    Ok(files)
}

/// Private anonymous memory.
struct Region {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Region {
    /// `length` bytes with all pages touched. Without huge pages, so that the page tables are as large as those of a heap that grew
    /// in small steps.
    fn touched(length: u64) -> Result<Self> {
        let length = usize::try_from(length)?;
        // SAFETY: a new private mapping at an address chosen by the kernel overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let region = Self { start, length };
        // SAFETY: the range is the new mapping, and the advice changes no contents. Kernels without huge pages return an
        // error, which is harmless.
        let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxNoHugepage) };
        for offset in (0..length).step_by(rustix::param::page_size()) {
            // SAFETY: offset < length, so the byte is inside the new writable mapping. Volatile: the compiler could remove
            // stores that are never read.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        Ok(region)
    }

    /// `count` mappings of one touched page each: neighbours differ in protection, so the kernel cannot merge them.
    fn striped(count: u64) -> Result<Self> {
        let page = rustix::param::page_size();
        let region = Self::touched(count * page as u64)?;
        for index in (1..usize::try_from(count)?).step_by(2) {
            // SAFETY: the page is inside the new mapping, which nothing else uses.
            let answer =
                unsafe { rustix::mm::mprotect(region.start.byte_add(index * page), page, MprotectFlags::READ) };
            if let Err(error) = answer {
                bail!(io::Error::from(error));
            }
        }
        Ok(region)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `touched`, and no other code has its address.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striped_memory_has_many_mappings_until_dropped() {
        let count = |region: &Region| {
            let end = region.start as usize + region.length;
            let starts = fs::read_to_string("/proc/self/maps").expect("maps");
            starts
                .lines()
                .filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok())
                .filter(|start| (region.start as usize..end).contains(start))
                .count()
        };
        let region = Region::striped(200).expect("200 pages");
        assert!(count(&region) >= 199, "{}", count(&region));
    }

    #[test]
    fn files_are_opened_up_to_the_count() {
        let before = open_until(0, true).expect("none");
        assert!(before.is_empty());
        let files = open_until(300, true).expect("300 files");
        assert!(files.len() <= 298 && files.len() > 100, "{}", files.len());
    }
}
