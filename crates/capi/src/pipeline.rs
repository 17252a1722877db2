//! The functions of pipelines.

use crate::boundary::to_status;
use crate::child::ChildHandle;
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{self, Handle, NULL, free, give, out, shared};
use crate::output::{Options, OutputHandle, capture};
use crate::run::child;
use forkless::{Pipeline, PipelineStatus, Prepared};
use libc::{c_int, size_t};
use std::os::unix::process::ExitStatusExt;

type PipelineHandle = Handle<PipelinePrograms>;

#[derive(Default)]
pub(crate) struct PipelinePrograms {
    pipeline: Pipeline,
    programs: usize,
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_new(pipeline: *mut *mut PipelineHandle) -> c_int {
    // SAFETY: `pipeline` is null or writable (forkless.h).
    unsafe { to_status(NULL, || give(pipeline, || Ok(out(Handle::new(PipelinePrograms::default()))))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_free(pipeline: *mut PipelineHandle) {
    // SAFETY: `pipeline` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(pipeline) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_command(
    pipeline: *mut PipelineHandle,
    command: *mut Settable,
    error: *mut Error,
) -> c_int {
    let add = |row: &mut PipelinePrograms| {
        // SAFETY: `command` is null or a live handle (forkless.h).
        unsafe { command::run(command, |command| Ok(row.pipeline.command(command).map(drop)?)) }?;
        row.programs += 1;
        Ok(0)
    };
    // SAFETY: `pipeline` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(pipeline, add)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_prepared(pipeline: *mut PipelineHandle, prepared: *const Prepared) -> c_int {
    let add = |row: &mut PipelinePrograms| {
        // SAFETY: `prepared` is null or a live handle (forkless.h).
        row.pipeline.prepared(unsafe { shared(prepared) }?);
        row.programs += 1;
        Ok(0)
    };
    // SAFETY: `pipeline` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(pipeline, add)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_pipefail(pipeline: *mut PipelineHandle, on: c_int) -> c_int {
    let set = |row: &mut PipelinePrograms| {
        row.pipeline.pipefail(on != 0);
        Ok(0)
    };
    // SAFETY: `pipeline` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(pipeline, set)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_count(pipeline: *mut PipelineHandle) -> c_int {
    // SAFETY: `pipeline` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || handle::with(pipeline, |row| Ok(row.programs as c_int))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_spawn(
    pipeline: *mut PipelineHandle,
    count: size_t,
    children: *mut *mut ChildHandle,
    error: *mut Error,
) -> c_int {
    let spawn = |row: &mut PipelinePrograms| {
        if children.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        if count < row.programs {
            return Err(bad("the array has fewer elements than the pipeline has programs"));
        }
        let running = row.pipeline.spawn()?;
        for (n, one) in running.children.into_iter().enumerate() {
            // SAFETY: `children` has `count` elements (forkless.h), at least one for each program (checked above).
            unsafe { children.add(n).write(child(Ok(one))?) };
        }
        Ok(row.programs as c_int)
    };
    // SAFETY: `pipeline` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(pipeline, spawn)) }
}

/// The array for the statuses of the first programs.
struct Places(*mut c_int, size_t);

impl Places {
    fn check(&self) -> Result<(), Failure> {
        if self.0.is_null() && self.1 > 0 { Err(bad("the pointer to the result is null")) } else { Ok(()) }
    }

    /// # Safety
    /// The array has `self.1` elements.
    unsafe fn fill(&self, found: &PipelineStatus) {
        for (n, status) in found.all().iter().take(self.1).enumerate() {
            // SAFETY: the caller's contract.
            unsafe { self.0.add(n).write(status.into_raw()) };
        }
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_status(
    pipeline: *mut PipelineHandle,
    count: size_t,
    statuses: *mut c_int,
    status: *mut c_int,
    error: *mut Error,
) -> c_int {
    let places = Places(statuses, count);
    let run = |row: &mut PipelinePrograms| {
        places.check()?;
        let found = row.pipeline.status()?;
        // SAFETY: `statuses` has `count` elements (forkless.h).
        unsafe { places.fill(&found) };
        Ok(found.status().into_raw())
    };
    // SAFETY: `pipeline` is null or a live handle; `status` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(pipeline, |row| give(status, || run(row)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pipeline_capture(
    pipeline: *mut PipelineHandle,
    options: *const Options,
    count: size_t,
    statuses: *mut c_int,
    output: *mut *mut OutputHandle,
    error: *mut Error,
) -> c_int {
    let places = Places(statuses, count);
    let run = |row: &mut PipelinePrograms| {
        places.check()?;
        // SAFETY: `options` is null or initialized; `statuses` has `count` elements (forkless.h).
        unsafe {
            capture(options, |how| {
                let (captured, found) = row.pipeline.capture(how)?;
                places.fill(&found);
                Ok(captured)
            })
        }
    };
    // SAFETY: `pipeline` is null or a live handle; `output` and `error` are null or writable (forkless.h).
    unsafe { to_status(error, || handle::with(pipeline, |row| give(output, || run(row)))) }
}
