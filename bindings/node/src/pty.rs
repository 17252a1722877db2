//! Pseudo-terminals that JavaScript has opened. Its settings name them by numbers, because they are JSON.

use crate::sandbox::code;
use forkless::{Command, Pty, PtySize};
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// The open terminals of all threads.
static OPEN: Mutex<(u32, BTreeMap<u32, Pty>)> = Mutex::new((0, BTreeMap::new()));

/// A pseudo-terminal. `lib/pty.js` has the class that is public.
#[napi]
pub struct NativePty {
    /// None: it has been closed.
    pty: Option<Pty>,
    number: u32,
    /// The program's side. Reads do not end while it is open.
    held: Option<OwnedFd>,
}

impl NativePty {
    fn pty(&self) -> napi::Result<&Pty, String> {
        self.pty.as_ref().ok_or_else(|| napi::Error::new("EBADF".to_owned(), "the terminal has been closed".to_owned()))
    }
}

fn to_js_error(error: io::Error) -> napi::Error<String> {
    napi::Error::new(code(&error), error.to_string())
}

#[napi]
impl NativePty {
    /// Opens one.
    #[napi(factory)]
    pub fn open(rows: u16, columns: u16) -> napi::Result<Self, String> {
        let pty = Pty::open(PtySize::new(rows, columns)).map_err(to_js_error)?;
        let held = Some(pty.follower().map_err(to_js_error)?);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, pty.clone());
        Ok(Self { pty: Some(pty), number, held })
    }

    /// For the setting.
    #[napi]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A descriptor of this side, which the caller closes.
    #[napi]
    pub fn fd(&self) -> napi::Result<i32, String> {
        fcntl_dupfd_cloexec(self.pty()?, 3).map(IntoRawFd::into_raw_fd).map_err(|errno| to_js_error(errno.into()))
    }

    /// The path of the program's side.
    #[napi]
    pub fn path(&self) -> napi::Result<String, String> {
        self.pty()?.path().map(|path| path.display().to_string()).map_err(to_js_error)
    }

    /// Changes the size.
    #[napi]
    pub fn resize(&self, rows: u16, columns: u16) -> napi::Result<(), String> {
        self.pty()?.resize(PtySize::new(rows, columns)).map_err(to_js_error)
    }

    /// Whether typed bytes come back.
    #[napi]
    pub fn echo(&self, on: bool) -> napi::Result<(), String> {
        self.pty()?.echo(on).map_err(to_js_error)
    }

    /// Types the end-of-file character.
    #[napi]
    pub fn send_eof(&self) -> napi::Result<(), String> {
        self.pty()?.send_eof().map_err(to_js_error)
    }

    /// What is left when nobody has the program's side open. libuv takes a hang-up for the end once a read has not filled its buffer.
    #[napi]
    pub fn rest(&self) -> Buffer {
        let mut rest = Vec::new();
        let mut chunk = [0; 8192];
        while let Some(count) =
            self.pty.as_ref().and_then(|mut pty| pty.read(&mut chunk).ok()).filter(|count| *count > 0)
        {
            rest.extend_from_slice(&chunk[..count]);
        }
        rest.into()
    }

    /// The child has ended: reads end when no other process has the terminal open.
    #[napi]
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Closes it. It hangs up when the descriptor of `fd` is closed, too.
    #[napi]
    pub fn close(&mut self) {
        (self.pty, self.held) = (None, None);
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.number);
    }
}

/// Of a worker that has been ended, which does not close its streams.
impl Drop for NativePty {
    fn drop(&mut self) {
        self.close();
    }
}

/// The setting: the terminal's number, and the standard streams that it is.
pub(crate) fn apply(command: &mut Command, value: &Value) -> Result<(), String> {
    let number = value.get("number").and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let pty = number.and_then(|number| open.1.get(&number)).ok_or("it has been closed")?;
    command.pty(pty);
    Ok(())
}

/// Whether the terminal of these settings is this standard stream.
pub(crate) fn is_stream(settings: Option<&Map<String, Value>>, number: RawFd) -> bool {
    let streams = settings.and_then(|settings| settings.get("pty")?.get("streams")?.as_array());
    streams.is_some_and(|streams| streams.iter().any(|one| one.as_i64() == Some(number.into())))
}

/// A pipe, close-on-exec: the reading and the writing end, which the caller closes.
#[napi]
pub fn pipe() -> napi::Result<Vec<i32>, String> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| to_js_error(errno.into()))?;
    Ok(vec![read.into_raw_fd(), write.into_raw_fd()])
}
