//! The setting `mounts=[…]`: operations on the child's mounts, in this order. Each is a tuple of a name and its
//! operands.

use crate::convert::{Text, owned, pairs};
use forkless::Command;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsStr;
use std::path::Path;

pub(crate) fn apply(command: &mut Command, mounts: &Bound<'_, PyAny>) -> PyResult<()> {
    mounts.try_iter()?.try_for_each(|mount| one(command, mount?.cast::<PyTuple>()?))
}

fn one(command: &mut Command, mount: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Ok(kind) = mount.get_item(0).and_then(|kind| kind.extract::<String>()) else {
        return Err(PyTypeError::new_err("expected tuples that begin with the name of an operation"));
    };
    let rest = mount.get_slice(1, mount.len());
    match kind.as_str() {
        "bind" => {
            let (source, target): (Text<'_>, Text<'_>) = rest.extract()?;
            command.bind(source, target);
        }
        "bind_read_only" => {
            let (source, target): (Text<'_>, Text<'_>) = rest.extract()?;
            command.bind_read_only(source, target);
        }
        "read_only" => _ = command.read_only(only(&rest)?),
        "tmpfs" => {
            let (target, options): (Text<'_>, String) = rest.extract()?;
            command.tmpfs(target, &options);
        }
        "proc" => _ = command.proc(only(&rest)?),
        "devices" => _ = command.devices(only(&rest)?),
        "unmount" => _ = command.unmount(only(&rest)?),
        "dir" => {
            let (path, mode): (Text<'_>, u32) = rest.extract()?;
            command.make_dir(path, mode);
        }
        "symlink" => {
            let (to, path): (Text<'_>, Text<'_>) = rest.extract()?;
            command.make_symlink(to, path);
        }
        "attributes" => {
            let (target, set, clear): (Text<'_>, u64, u64) = rest.extract()?;
            command.mount_attributes(target, set, clear);
        }
        "attach" => {
            let (tree, target): (Bound<'_, PyAny>, Text<'_>) = rest.extract()?;
            command.attach_mount(owned(&tree)?, target);
        }
        "mount" => {
            type Words<'py> = (Option<Text<'py>>, Text<'py>, Option<String>, u64, Option<Text<'py>>);
            let (source, target, kind, flags, data): Words<'_> = rest.extract()?;
            let [source, data] = [&source, &data].map(|text| text.as_ref().map(|text| text.as_os_str()));
            command.mount(source, target, kind.as_deref(), flags, data);
        }
        "overlay" => {
            let (lower, upper, target): (Vec<Text<'_>>, Option<(Text<'_>, Text<'_>)>, Text<'_>) = rest.extract()?;
            let upper = upper.as_ref().map(|(upper, work)| (upper.as_ref(), work.as_ref()));
            let lower: Vec<&Path> = lower.iter().map(AsRef::as_ref).collect();
            command.overlay(&lower, upper, target);
        }
        "file_system" => {
            let (kind, parameters, attributes, target): (String, Bound<'_, PyAny>, u64, Text<'_>) = rest.extract()?;
            let extract = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<(String, Option<String>)> {
                Ok((key.extract()?, value.extract()?))
            };
            let parameters: Vec<_> = pairs(&parameters)?.into_iter().map(extract).collect::<PyResult<_>>()?;
            let parameters = parameters.iter().map(|(key, value)| (key.as_str(), value.as_deref().map(OsStr::new)));
            command.file_system(&kind, parameters, attributes, target);
        }
        _ => return Err(PyValueError::new_err(format!("unknown mount operation '{kind}'"))),
    }
    Ok(())
}

fn only<'py>(rest: &Bound<'py, PyTuple>) -> PyResult<Text<'py>> {
    let (one,): (Text<'py>,) = rest.extract()?;
    Ok(one)
}
