//! Failures, as JavaScript gets them.

use crate::request::Refusal;
use forkless::{Error, Step};
use napi_derive::napi;
use std::io;

/// A launch that failed.
#[napi(object)]
#[derive(Debug)]
pub struct Failure {
    /// The negated errno, as libuv has it; -EINVAL if the request itself was invalid.
    pub errno: i32,
    /// The step that failed.
    pub step: String,
    /// The thing on which it failed.
    pub object: Option<String>,
    /// Program, step, object and reason.
    pub message: String,
}

impl Failure {
    /// The failure of a launch.
    pub(crate) fn of(error: &io::Error) -> Self {
        let detail = Error::of(error);
        let errno = match detail {
            Some(detail) => detail.errno(),
            None => error.raw_os_error(),
        };
        Self {
            errno: -errno.unwrap_or(libc::EINVAL),
            step: detail.map_or("launch", |detail| detail.step().describe()).to_owned(),
            object: detail.and_then(Error::object).map(str::to_owned),
            message: error.to_string(),
        }
    }

    /// A request that was refused, or whose launch failed.
    pub(crate) fn refused(file: &str, refusal: Refusal) -> Self {
        let (errno, step, object, reason) = match refusal {
            Refusal::Launch(error) => return Self::of(&error),
            Refusal::Directory(error) => {
                (error.raw_os_error(), Step::Chdir, None, format!("{}: {error}", Step::Chdir.describe()))
            }
            Refusal::Null(error) => (error.raw_os_error(), Step::PassFd, None, format!("/dev/null: {error}")),
            Refusal::Setting(reason) => (None, Step::Check, None, reason),
            Refusal::Nul => (None, Step::Check, None, "an argument or a variable contains a NUL byte".to_owned()),
        };
        Self {
            errno: -errno.unwrap_or(libc::EINVAL),
            step: step.describe().to_owned(),
            object,
            message: format!("failed to start {file:?}: {reason}"),
        }
    }
}
