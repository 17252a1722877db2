//! `forkless.Sandbox`: what programs that are not trusted may do.

use crate::convert::{Text, amount, each, seconds};
use crate::error;

use forkless::{Command, Network, PreparedSandbox, Sandbox as Builder};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

/// What a program may do, for the keyword `sandbox`. Any number of launches and threads may use it.
///
/// mode: "namespaces", where the program sees nothing else and has an init (see `namespaces(7)`), or "landlock", a sandbox of Landlock
/// and a filter of system calls alone, which hides nothing and works where user namespaces are refused. read, write: paths that the
/// program may read, or also write to, with all below them; the system's programs and libraries can be read. project: as write, but what
/// programs outside obey there, such as hooks of git, stays read-only. hide: paths and patterns below these that cannot be opened, such as
/// "**/.env", looked up at each launch, or by prepare(). network: "none" (a
/// loopback device alone; for namespaces, where it is the default), "refused" (no sockets) or "host". keep_env: names of variables to
/// inherit beside PATH, HOME, TERM, LANG and the like. change_attributes: with Landlock, whether it may change modes, owners and times,
/// which then holds for every file of its user. linger: with namespaces, the seconds that other processes have when the program has ended
/// (default: 0.2). strict: with namespaces, what it writes to /tmp and /dev/shm cannot be executed, and Landlock of Linux 6.12 is required.
/// init: with namespaces, False makes the program itself PID 1 of the sandbox, which is faster, and loses what docs/sandbox.md says.
/// memory_max, tasks_max, cpu_max, io_max, cgroup_parent: limits of each launch with all that it starts, as in `forkless.Settings`.
/// See docs/sandbox.md.
///
/// Raises OSError if the kernel has no Landlock of Linux 6.2, if no program may be in memory (`vm.memfd_noexec`), or if a path does not
/// exist. A launch raises it if namespaces are refused.
#[pyclass(frozen, module = "forkless")]
pub(crate) struct Sandbox {
    prepared: PreparedSandbox,
    has_init: bool,
    makes_cgroup: bool,
    repr: String,
}

#[pymethods]
impl Sandbox {
    #[new]
    #[pyo3(signature = (*, mode="namespaces", read=None, write=None, project=None, hide=None, network=None, keep_env=None, change_attributes=false, linger=None, strict=false, init=true, **limits))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        mode: &str,
        read: Option<Bound<'_, PyAny>>,
        write: Option<Bound<'_, PyAny>>,
        project: Option<Bound<'_, PyAny>>,
        hide: Option<Bound<'_, PyAny>>,
        network: Option<&str>,
        keep_env: Option<Bound<'_, PyAny>>,
        change_attributes: bool,
        linger: Option<Bound<'_, PyAny>>,
        strict: bool,
        init: bool,
        limits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (has_init, mut sandbox) = match mode {
            "namespaces" => (true, Builder::new()),
            "landlock" => (false, Builder::landlock()),
            _ => {
                let words = format!("mode: expected 'namespaces' or 'landlock', not {mode:?}");
                return Err(PyValueError::new_err(words));
            }
        };
        match network {
            None => {}
            Some("none") => _ = sandbox.network(Network::None),
            Some("refused") => _ = sandbox.network(Network::Refused),
            Some("host") => _ = sandbox.network(Network::Host),
            Some(other) => {
                let words = format!("network: expected 'none', 'refused' or 'host', not {other:?}");
                return Err(PyValueError::new_err(words));
            }
        }
        let (read, write, projects, names) = (texts(read)?, texts(write)?, texts(project)?, texts(keep_env)?);
        for path in &read {
            sandbox.read(path.as_os_str());
        }
        for path in &write {
            sandbox.write(path.as_os_str());
        }
        for path in &projects {
            sandbox.writable_project(path.as_os_str());
        }
        for path in &texts(hide)? {
            sandbox.hide(path.as_os_str());
        }
        for name in &names {
            sandbox.keep_env(name.as_os_str());
        }
        sandbox.change_attributes(change_attributes).strict(strict).init(init);
        if let Some(linger) = linger {
            sandbox.linger(seconds(&linger)?);
        }
        for (name, value) in limits.into_iter().flatten() {
            let name: String = name.extract()?;
            if name == "cgroup_parent" && !value.is_none() {
                sandbox.cgroup_parent(value.extract::<Text<'_>>()?.as_os_str());
            } else if !value.is_none() && !sandbox.limit(&name, amount(&value)?) {
                return Err(PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'")));
            }
        }
        let makes_cgroup = limits.is_some_and(|limits| limits.iter().any(|(_, value)| !value.is_none()));
        let prepared = py.detach(|| sandbox.prepare()).map_err(|error| error::plain(py, error))?;
        let list = |texts: &[Text<'_>]| texts.iter().map(|text| text.as_os_str().to_owned()).collect::<Vec<_>>();
        let repr = format!("<forkless.Sandbox mode='{mode}' read={:?} write={:?}>", list(&read), list(&write));
        Ok(Self { prepared, has_init, makes_cgroup, repr })
    }

    /// Whether each launch makes a cgroup.
    #[getter]
    fn _makes_cgroup(&self) -> bool {
        self.makes_cgroup
    }

    /// Whether this machine can give the sandbox to this process, by trying. Raises OSError, which says what is refused.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.prepared.check()).map_err(|error| error::plain(py, error))
    }

    fn __repr__(&self) -> &str {
        &self.repr
    }
}

/// One text or path, or an iterable of them.
fn texts<'py>(value: Option<Bound<'py, PyAny>>) -> PyResult<Vec<Text<'py>>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() || value.hasattr("__fspath__")? {
        return Ok(vec![value.extract()?]);
    }
    each(&value)
}

/// The keyword `sandbox`: one that was made, or `True` for a new one without paths.
pub(crate) fn apply(command: &mut Command, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(sandbox) = value.cast::<Sandbox>() {
        command.sandbox(&sandbox.get().prepared);
    } else if value
        .cast::<PyBool>()
        .map_err(|_| PyTypeError::new_err("expected a forkless.Sandbox or a bool"))?
        .is_true()
    {
        command.sandbox(&Builder::new().prepare().map_err(|error| error::plain(value.py(), error))?);
    }
    Ok(())
}

/// Whether the program has an init, which reports its end to the handle alone; and whether it has a root of its own.
pub(crate) fn has_init(settings: Option<&Bound<'_, PyDict>>) -> PyResult<(bool, bool)> {
    let kills_tree = settings.map(|settings| settings.get_item("kill_tree")).transpose()?.flatten();
    let kills_tree = kills_tree.is_some_and(|value| value.is_truthy().unwrap_or(true));
    let Some(value) = settings.map(|settings| settings.get_item("sandbox")).transpose()?.flatten() else {
        return Ok((kills_tree, false));
    };
    let has_root =
        value.cast::<Sandbox>().map_or_else(|_| value.is_truthy().unwrap_or(true), |sandbox| sandbox.get().has_init);
    Ok((kills_tree || has_root, has_root))
}
