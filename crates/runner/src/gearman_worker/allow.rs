//! Which programs may run.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use forkless_jobs::Run;

/// The list of permitted programs. An empty one permits everything.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    entries: Vec<Entry>,
}

#[derive(Debug)]
enum Entry {
    /// This file.
    Program(PathBuf),
    /// All files below it.
    Directory(PathBuf),
}

impl Allowed {
    /// From the values of `--allow`. Symbolic links are followed once, here.
    ///
    /// # Errors
    /// A path is relative or does not exist.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self, String> {
        let entry = |path: &PathBuf| {
            if !path.is_absolute() {
                return Err(format!("--allow: not an absolute path, such as /usr/lib/nagios/plugins/: {path:?}"));
            }
            let real = fs::canonicalize(path).map_err(|error| format!("--allow: {path:?}: {error}"))?;
            let is_below = path.as_os_str().as_bytes().ends_with(b"/");
            if real.is_dir() != is_below {
                let what = if is_below { "is no directory" } else { "is a directory, and must end in /" };
                return Err(format!("--allow: {path:?} {what}"));
            }
            Ok(if is_below { Entry::Directory(real) } else { Entry::Program(real) })
        };
        Ok(Self { entries: paths.iter().map(entry).collect::<Result<_, _>>()? })
    }

    /// How to run a line.
    ///
    /// # Errors
    /// The reason why it may not run. With a list, the line must be a program, by its path, and arguments: what a shell
    /// would run is not known, and a variable such as LD_PRELOAD would make any program of a permitted one.
    pub(super) fn run(&self, line: Vec<u8>) -> Result<Run, String> {
        if self.entries.is_empty() {
            return Ok(Run::Line(line));
        }
        let shell = forkless::shell(&line);
        let Some(words) = shell.plain_words() else {
            return Err("only a program with arguments is allowed, no shell".to_owned());
        };
        let Some((program, args)) = words.split_first() else { return Err("no program".to_owned()) };
        let path = Path::new(OsStr::from_bytes(program));
        let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        if !path.is_absolute() {
            return Err(refused(&"only programs with an absolute path are allowed"));
        }
        let real = fs::canonicalize(path).map_err(|error: io::Error| refused(&error))?;
        let is_allowed = self.entries.iter().any(|entry| match entry {
            Entry::Program(program) => real == *program,
            Entry::Directory(directory) => real.starts_with(directory) && real != *directory,
        });
        if !is_allowed {
            return Err(refused(&"not allowed"));
        }
        // The path that was compared, so that a link that is changed in between leads nowhere else.
        let args = args.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        Ok(Run::Program { program: real.into_os_string(), args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(allowed: &Allowed, line: &str) -> bool {
        allowed.run(line.as_bytes().to_vec()).is_ok()
    }

    #[test]
    fn only_listed_programs_run_whatever_path_leads_to_them() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("plugins")).expect("a directory");
        fs::create_dir(path("plugins.old")).expect("a directory");
        for name in ["plugins/check", "plugins.old/check", "other", "one"] {
            fs::write(path(name), "").expect("a file");
        }
        std::os::unix::fs::symlink(path("other"), path("plugins/link")).expect("a link");
        let allowed = Allowed::new(&[path("plugins/"), path("one")]).expect("a list");
        let shown = |name: &str| path(name).display().to_string();
        for name in ["plugins/check", "plugins/../plugins/check", "one"] {
            assert!(is_allowed(&allowed, &shown(name)), "{name}");
        }
        for name in ["plugins.old/check", "plugins/link", "plugins/../other", "plugins/missing", "plugins", "other"] {
            assert!(!is_allowed(&allowed, &shown(name)), "{name}");
        }
        let check = shown("plugins/check");
        assert!(is_allowed(&allowed, &format!("{check} -a 'b c'")));
        for line in ["check", "sh -c id", ""].map(str::to_owned).into_iter().chain([
            format!("{check}; id"),
            format!("{check} $(id)"),
            format!("LD_PRELOAD=/tmp/x.so {check}"),
            format!("{check} > /etc/passwd"),
            format!("exec {check}"),
        ]) {
            assert!(!is_allowed(&allowed, &line), "{line}");
        }
        assert!(is_allowed(&Allowed::default(), "id; id"), "without a list");
    }

    #[test]
    fn entries_must_exist_and_say_what_they_are() {
        for wrong in ["bin/ls", "/no/such/program", "/etc"] {
            assert!(Allowed::new(&[wrong.into()]).is_err(), "{wrong}");
        }
        assert!(Allowed::new(&["/etc/".into(), "/bin/sh".into()]).is_ok());
    }
}
