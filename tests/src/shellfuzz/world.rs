//! A directory in which a line is run directly and by the shell, and the comparison of the two runs.

use super::fence;
use super::grammar::{Random, environment};
use forkless::{Command, ShellCommand, ShellRoute, Stdio};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// The conditions under which a line is run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Conditions {
    pub(crate) environment: Vec<String>,
    directory: Option<&'static str>,
    umask: Option<u32>,
    ignored: Vec<i32>,
    blocked: Vec<i32>,
    /// Every descriptor is inherited; 7 is open.
    inherit_all: bool,
    /// Both outputs are pipes, not files.
    captures: bool,
    has_input: bool,
    closed: Option<i32>,
}

impl Conditions {
    /// Nothing but an environment.
    pub(crate) fn plain(environment: Vec<String>) -> Self {
        Self { environment, ..Self::default() }
    }

    pub(crate) fn any(random: &mut Random, world: &World) -> Self {
        let mut made = Self { environment: environment(random, &world.name()), ..Self::default() };
        made.directory = [None, None, None, Some("dir"), Some("link"), Some("dir/../dir")][random.below(6)];
        made.umask = [None, None, Some(0), Some(0o77), Some(0o777)][random.below(5)];
        while random.percent(15) {
            made.ignored.push([1, 2, 3, 13, 15, 17, 18, 21, 34, 64][random.below(10)]);
        }
        while random.percent(10) {
            made.blocked.push([1, 2, 3, 13, 15, 17, 20, 23, 40][random.below(9)]);
        }
        made.inherit_all = random.percent(20);
        made.captures = random.percent(30);
        made.has_input = random.percent(40);
        made.closed = if !made.captures && random.percent(8) { Some(random.below(3) as i32) } else { None };
        made
    }

    pub(crate) fn set(&self, command: &mut Command, outputs: Option<&[File; 2]>) -> io::Result<()> {
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        if let Some(mask) = self.umask {
            command.umask(mask);
        }
        for &signal in &self.ignored {
            command.signal_ignore(signal);
        }
        for &signal in &self.blocked {
            command.signal_block(signal);
        }
        command.inherit_all(self.inherit_all);
        if self.closed != Some(0) {
            let input = if self.has_input { "input" } else { "/dev/null" };
            command.stdin(Stdio::from(File::open(input)?));
        }
        if let Some(outputs) = outputs {
            for (number, file) in (1..).zip(outputs) {
                if self.closed != Some(number) {
                    command.fd(Stdio::copy_of(file)?, number);
                }
            }
        }
        Ok(())
    }
}

/// All that can be seen of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// As `wait(2)` gives it, or why there is none.
    pub(crate) status: Result<i32, String>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) report: Option<Vec<u8>>,
    pub(crate) files: BTreeMap<PathBuf, Entry>,
}

impl Outcome {
    /// Of what the program finds, its arguments, directory, mask for files and descriptors stay.
    pub(crate) fn leave_out_what_is_the_shells(&mut self) {
        self.stderr.clear();
        if let Some(report) = &mut self.report {
            let kept =
                |line: &&[u8]| [&b"arg "[..], b"cwd ", b"Umask:", b"fd "].iter().any(|kind| line.starts_with(kind));
            *report = report.split(|&byte| byte == b'\n').filter(kept).collect::<Vec<_>>().join(&b'\n');
        }
    }
}

/// A file: mode, and content or target.
type Entry = (u32, Vec<u8>);

pub(crate) struct World {
    root: PathBuf,
    shell: PathBuf,
    /// The shell that lines are compared with.
    against: PathBuf,
    baseline: BTreeMap<PathBuf, Entry>,
    environ: (Vec<CString>, Vec<*const c_char>),
}

impl World {
    /// Makes it in a directory, goes there, and puts a fence around it.
    pub(crate) fn new(place: &Path, shell: &Path, against: Option<&Path>, probe: &Path) -> io::Result<Self> {
        let against = against.unwrap_or(shell).to_owned();
        open_leaked();
        let place = fs::canonicalize(place)?;
        let root = place.join("w");
        let file = |name: &str, mode: u32, text: &str| -> io::Result<()> {
            let path = root.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        for name in ["", "dir", "bin", "bin2", "bin2/both", "bin2/p2", "sys"] {
            fs::create_dir(root.join(name))?;
        }
        let mut programs = vec![fs::canonicalize(shell)?, fs::canonicalize(&against)?, fs::canonicalize("/bin/sh")?];
        for name in ["cat", "env", "ls"] {
            let file =
                ["/bin", "/usr/bin"].map(|place| Path::new(place).join(name)).into_iter().find(|file| file.exists());
            programs.push(fs::canonicalize(file.ok_or(io::ErrorKind::NotFound)?)?);
            symlink(&programs[programs.len() - 1], root.join("sys").join(name))?;
        }
        for name in ["p2", "bin/p", "bin/sub-p"] {
            fs::copy(probe, root.join(name))?;
        }
        for (place, name) in [("", "input"), ("", "in"), ("dir", "in"), ("", "i2")] {
            file(format!("{place}/{name}").trim_start_matches('/'), 0o644, "hello\n")?;
        }
        for place in ["", "bin/"] {
            file(&format!("{place}noexec"), 0o644, "#!/bin/sh\necho no\n")?;
            file(&format!("{place}plain"), 0o755, "echo plain $0 $*\n")?;
            file(&format!("{place}shebang"), 0o755, "#!/bin/sh\necho shebang $0 $*\n")?;
            file(&format!("{place}badint"), 0o755, "#!/nosuch\n")?;
        }
        file("bin/both", 0o755, "#!/bin/sh\necho both $0 $*\n")?;
        file("bin2/p", 0o644, "not executable")?;
        for (target, name) in [("dir", "link"), ("/proc/self", "proc"), ("/dev/fd", "fds")] {
            symlink(target, root.join(name))?;
        }
        // No ordinary file; a pipe would keep a program that opens it waiting.
        let socket = CString::new(root.join("socket").as_os_str().as_bytes())?;
        // SAFETY: makes a file by a path that ends in NUL.
        unsafe { libc::mknod(socket.as_ptr(), libc::S_IFSOCK | 0o600, 0) };
        std::env::set_current_dir(&root)?;
        fence::put_up(&place, &programs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        // SAFETY: reads the structure.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &LARGEST) };
        let mut world = Self {
            root,
            shell: shell.to_owned(),
            against,
            baseline: BTreeMap::new(),
            environ: (Vec::new(), Vec::new()),
        };
        world.baseline = world.list_files()?;
        Ok(world)
    }

    fn name(&self) -> String {
        self.root.display().to_string()
    }

    /// The variables of an ordinary environment here.
    pub(crate) fn variables(&self) -> Vec<String> {
        let root = self.name();
        vec![
            format!("PATH={root}/bin:{root}/sys"),
            format!("PWD={root}"),
            format!("FUZZ_REPORT={root}.report"),
            "SHLVL=1".to_owned(),
        ]
    }

    /// Programs of these names, all of which are the probe; they are all there is in the environment's PATH.
    pub(crate) fn stand_ins(&mut self, names: &[String]) -> io::Result<Vec<String>> {
        let place = self.root.with_extension("programs");
        fs::create_dir_all(&place)?;
        for name in names {
            let _ = symlink(self.root.join("p2"), place.join(name));
        }
        Ok(vec![
            format!("PATH={}", place.display()),
            format!("FUZZ_REPORT={}.report", self.name()),
            "HOME=/root".into(),
            // Without it, bash may read a file.
            "SHLVL=1".into(),
        ])
    }

    /// Replaces the environment of this process, entry by entry: `std::env` could not say it twice.
    pub(crate) fn set_environment(&mut self, entries: &[String]) {
        unsafe extern "C" {
            static mut environ: *const *const c_char;
        }
        let texts: Vec<CString> = entries.iter().map(|entry| CString::new(entry.as_bytes()).expect("no NUL")).collect();
        let mut list: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(std::ptr::null());
        // SAFETY: this process has one thread; the list is kept until the next one has replaced it.
        unsafe { environ = list.as_ptr() };
        self.environ = (texts, list);
    }

    /// The line as the library takes it.
    pub(crate) fn line(&self, line: &[u8], conditions: &Conditions) -> io::Result<ShellCommand> {
        let mut made = forkless::shell(line);
        made.shell_path(&self.shell);
        let outputs = self.outputs(conditions)?;
        conditions.set(made.settings(), outputs.as_ref())?;
        Ok(made)
    }

    /// Records what is run; a run that takes too long is killed.
    pub(crate) fn note(&self, line: &[u8]) -> io::Result<()> {
        // SAFETY: no handler is set; the default action ends this process, and children inherit no alarm.
        unsafe { libc::alarm(PATIENCE) };
        fs::write(self.path("line"), line)
    }

    /// Runs the line without a shell if possible; returns whether it was.
    pub(crate) fn run_line(&self, line: &[u8], conditions: &Conditions) -> io::Result<(Outcome, ShellRoute)> {
        let mut made = self.line(line, conditions)?;
        let outcome = self.observe(conditions, &mut made, |made| made.status(), |made| made.output())?;
        let route = made.taken().cloned().unwrap_or(ShellRoute::Direct);
        Ok((outcome, route))
    }

    /// Runs `sh -c LINE`.
    pub(crate) fn run_shell(&self, line: &[u8], conditions: &Conditions) -> io::Result<Outcome> {
        let mut command = Command::new(&self.against);
        let is_same = self.against == self.shell && self.shell != Path::new("/bin/sh");
        let arg0 = if is_same { self.against.as_os_str() } else { "sh".as_ref() };
        command.arg0(arg0).arg("-c").arg(std::ffi::OsStr::from_bytes(line));
        let outputs = self.outputs(conditions)?;
        conditions.set(&mut command, outputs.as_ref())?;
        self.observe(conditions, &mut command, |command| command.status(), |command| command.output())
    }

    fn path(&self, what: &str) -> PathBuf {
        self.root.with_extension(what)
    }

    /// New files for both outputs, if they are not captured.
    fn outputs(&self, conditions: &Conditions) -> io::Result<Option<[File; 2]>> {
        let open = |what| File::options().append(true).read(true).create(true).mode(0o666).open(self.path(what));
        if conditions.captures { Ok(None) } else { Ok(Some([open("stdout")?, open("stderr")?])) }
    }

    fn observe<T>(
        &self,
        conditions: &Conditions,
        what: &mut T,
        how: impl Fn(&mut T) -> io::Result<std::process::ExitStatus>,
        output: impl Fn(&mut T) -> io::Result<std::process::Output>,
    ) -> io::Result<Outcome> {
        leak(conditions.inherit_all);
        let told = |error: io::Error| error.to_string();
        let (status, stdout, stderr);
        if conditions.captures {
            let found = output(what);
            status = found.as_ref().map(|found| found.status.into_raw()).map_err(|error| error.to_string());
            (stdout, stderr) = found.map(|found| (found.stdout, found.stderr)).unwrap_or_default();
        } else {
            let held = conditions.closed.map(close_for_now);
            status = status_of(how(what));
            held.into_iter().for_each(open_again);
            stdout = read(&self.path("stdout")).map_err(told).unwrap_or_default();
            stderr = read(&self.path("stderr")).map_err(told).unwrap_or_default();
        }
        let report = read(&self.path("report")).ok();
        let files = self.list_files()?;
        let outcome = Outcome { status, stdout, stderr, report, files };
        self.restore(&outcome.files)?;
        Ok(outcome)
    }

    /// Every file with mode and content.
    fn list_files(&self) -> io::Result<BTreeMap<PathBuf, Entry>> {
        fn walk(place: &Path, found: &mut BTreeMap<PathBuf, Entry>) -> io::Result<()> {
            for entry in fs::read_dir(place)? {
                let path = entry?.path();
                let about = path.symlink_metadata()?;
                let content = match about.mode() & libc::S_IFMT {
                    libc::S_IFDIR => {
                        walk(&path, found)?;
                        Vec::new()
                    }
                    libc::S_IFLNK => fs::read_link(&path)?.into_os_string().as_bytes().to_vec(),
                    // The probe and its copies are told by their size.
                    libc::S_IFREG if about.len() > 4096 => about.len().to_string().into_bytes(),
                    libc::S_IFREG => read(&path)?,
                    _ => Vec::new(),
                };
                found.insert(path, (about.mode(), content));
            }
            Ok(())
        }
        let mut found = BTreeMap::new();
        walk(&self.root, &mut found)?;
        Ok(found)
    }

    /// Makes everything as it was.
    fn restore(&self, now: &BTreeMap<PathBuf, Entry>) -> io::Result<()> {
        for path in now.keys().filter(|path| !self.baseline.contains_key(*path)).rev() {
            let gone = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
            assert!(gone.is_ok() || !path.exists(), "{path:?} cannot be removed");
        }
        for (path, entry) in &self.baseline {
            if now.get(path) != Some(entry) {
                assert_eq!(entry.0 & libc::S_IFMT, libc::S_IFREG, "{path:?}");
                // Anew: its mode may forbid writing to it.
                fs::remove_file(path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) })?;
                fs::write(path, &entry.1)?;
                fs::set_permissions(path, fs::Permissions::from_mode(entry.0 & 0o7777))?;
            }
        }
        ["report", "stdout", "stderr"].iter().for_each(|what| drop(fs::remove_file(self.path(what))));
        Ok(())
    }
}

/// Also what its owner may not read.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            fs::read(path)
        }
        answer => answer,
    }
}

fn status_of(found: io::Result<std::process::ExitStatus>) -> Result<i32, String> {
    found.map(|status| status.into_raw()).map_err(|error| error.to_string())
}

/// How long a line may take, in seconds.
const PATIENCE: u32 = 60;

/// As much as a program may write to a file: a line may make it read what it writes.
const LARGEST: libc::rlimit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };

/// Open in this process from the start, and inherited by some.
const LEAKED: i32 = 7;

/// `/dev/null` at that number, close-on-exec.
fn open_leaked() {
    // SAFETY: nothing else has been opened yet.
    unsafe { libc::dup3(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC), LEAKED, libc::O_CLOEXEC) };
}

fn leak(leaks: bool) {
    // SAFETY: changes a flag of our own descriptor.
    unsafe { libc::fcntl(LEAKED, libc::F_SETFD, if leaks { 0 } else { libc::FD_CLOEXEC }) };
}

/// Closes a standard stream, which is kept elsewhere.
fn close_for_now(number: i32) -> (i32, i32) {
    // SAFETY: nobody else is there to use the number meanwhile.
    unsafe {
        let kept = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 100);
        libc::close(number);
        (number, kept)
    }
}

fn open_again((number, kept): (i32, i32)) {
    // SAFETY: restores the previous value.
    unsafe {
        libc::dup2(kept, number);
        libc::close(kept);
    }
}
