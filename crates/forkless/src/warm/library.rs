//! Where `libforkless_warm.so` is.

use crate::procfs;
use nix::libc;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libforkless_warm.so";

/// The directories of packages and of `cargo xtask dist`.
const INSTALLED: [&str; 4] =
    ["/usr/local/lib/forkless", "/usr/lib/x86_64-linux-gnu/forkless", "/usr/lib/forkless", "/usr/lib64/forkless"];

/// The path as `/proc/PID/maps` shows it, if `LD_PRELOAD` can name it.
fn checked(path: &Path) -> io::Result<PathBuf> {
    let is_absolute = path.is_absolute();
    let path = std::fs::canonicalize(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'$' | b'\n');
    if !is_absolute || path.as_os_str().as_bytes().iter().any(separates) {
        let why =
            "the path of libforkless_warm.so must be absolute, without spaces, line feeds, colons and dollar signs";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(path)
}

/// The library that templates are made with.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) path: PathBuf,
    /// Found by the search, not named by the caller.
    is_found: bool,
}

impl Library {
    /// The library at a path that the caller names, and is responsible for.
    pub(super) fn named(path: &Path) -> io::Result<Self> {
        Ok(Self { path: checked(path)?, is_found: false })
    }

    /// The library that the search finds: see [`WarmOptions::library`](super::WarmOptions::library).
    pub(super) fn find() -> io::Result<Self> {
        let own = if is_privileged() { None } else { own_file() };
        Self::find_in(&places(own.as_deref()))
    }

    fn find_in(places: &[PathBuf]) -> io::Result<Self> {
        let mut refused = String::new();
        for place in places.iter().filter(|place| place.exists()) {
            match owned(place) {
                Ok(()) => return Ok(Self { path: checked(place)?, is_found: true }),
                Err(why) => refused += &format!("; {} is not used: {why}", place.display()),
            }
        }
        let listed: Vec<_> = places.iter().filter_map(|path| path.parent()?.to_str()).collect();
        let why = format!("{NAME} was not found (searched: {}{refused})", listed.join(", "));
        Err(io::Error::new(io::ErrorKind::NotFound, why))
    }

    /// Whether it may still be used. It was checked when the set was made, but owners and modes may have changed.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_found || owned(&self.path).is_ok()
    }
}

/// Checks that no other user can replace or change a file: with it they could run code with the rights of this process. The
/// error is the reason.
///
/// Neither the file nor a directory above it may belong to another user than root and the effective one, or be writable by
/// others. A sticky directory such as `/tmp` is accepted further up, because others cannot rename what is in it. It is not
/// accepted as the directory of the file itself, because others can give a file the library's name there, by a hard link.
/// The same holds for each symbolic link on the path and for what it leads to.
fn owned(path: &Path) -> Result<(), String> {
    let real = path.canonicalize().map_err(|error| error.to_string())?;
    owned_as_named(path)?;
    owned_as_named(&real)
}

/// [`owned`], without following a symbolic link at the end of the path, or of a directory above it.
fn owned_as_named(path: &Path) -> Result<(), String> {
    const STICKY: u32 = 0o1000;
    let user = rustix::process::geteuid().as_raw();
    for (depth, part) in path.ancestors().enumerate() {
        let found = part.symlink_metadata().map_err(|error| format!("{}: {error}", part.display()))?;
        if ![0, user].contains(&found.uid()) {
            return Err(format!("{} belongs to another user", part.display()));
        }
        let is_safe = depth > 1 && found.mode() & STICKY != 0 || found.is_symlink();
        if found.mode() & 0o022 != 0 && !is_safe {
            return Err(format!("others may write to {}", part.display()));
        }
    }
    Ok(())
}

/// Whether this program has more rights than the user who has started it (setuid, capabilities): `getauxval(3)` AT_SECURE.
/// That user can choose the directory in which such a program lies, by a hard link.
fn is_privileged() -> bool {
    // SAFETY: takes a number, and returns one that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The paths to look at, in their order. `own`: the file that contains this code.
fn places(own: Option<&Path>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(directory) = own.and_then(Path::parent) {
        places.extend([directory.join(NAME), directory.join("forkless").join(NAME)]);
        if let (Some("bin"), Some(prefix)) = (directory.file_name().and_then(|name| name.to_str()), directory.parent())
        {
            places.extend(["lib/forkless", "lib/x86_64-linux-gnu/forkless"].map(|lib| prefix.join(lib).join(NAME)));
        }
    }
    places.extend(INSTALLED.map(|directory| Path::new(directory).join(NAME)));
    places
}

/// The file that contains this code: the program, or a shared library. `None` if it has been deleted or replaced.
fn own_file() -> Option<PathBuf> {
    let maps = std::fs::read_to_string(procfs::own("maps")).ok()?;
    let here = own_file as *const () as usize;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        range.is_some_and(|(first, end)| {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            (number(first)..number(end)).contains(&here)
        })
    })?;
    let path = Path::new(&line[line.find('/')?..]);
    path.exists().then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_search_begins_beside_this_code() {
        let own = own_file().expect("a file");
        assert_eq!(own, std::env::current_exe().expect("a program"));
        assert_eq!(places(Some(&own))[0], own.with_file_name(NAME));
        let of_command = places(Some(Path::new("/opt/x/bin/forkless")));
        assert_eq!(of_command[2], Path::new("/opt/x/lib/forkless").join(NAME));
        assert_eq!(of_command.len(), 4 + INSTALLED.len());
    }

    /// A directory, removed at the end.
    struct Place<'a>(&'a Path);

    impl Drop for Place<'_> {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0);
        }
    }

    #[test]
    fn a_library_that_others_can_replace_is_not_found() {
        let name = format!("forkless-library-{}", std::process::id());
        let base = std::env::temp_dir().canonicalize().expect("a directory").join(name);
        create_dir(&base).expect("a directory");
        let _place = Place(&base);
        let (own, library) = (base.join("own"), base.join("own").join(NAME));
        create_dir(&own).expect("a directory");
        fs::write(&library, "").expect("a file");
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        // Whatever the umask is.
        mode(&own, 0o755);
        mode(&library, 0o644);
        if let Some(why) = owned_as_named(&library).err().filter(|why| !why.contains(&*base.to_string_lossy())) {
            println!("SKIPPED: a library that others can replace, because {why}");
            return;
        }
        let find = |path: &Path| Library::find_in(&[path.to_owned()]).map_err(|error| error.to_string());
        let refused = |path: &Path, why: &str| {
            let found = find(path);
            assert!(found.as_ref().is_err_and(|error| error.contains(why)), "{path:?}: {found:?}");
        };
        let found = find(&library).expect("a library of this user");
        assert_eq!(found.path, library);
        for (path, usual, others) in
            [(&library, 0o644, [0o664, 0o646]), (&own, 0o755, [0o775, 0o757]), (&base, 0o755, [0o775, 0o757])]
        {
            for writable in others {
                mode(path, writable);
                refused(&library, &format!("others may write to {}", path.display()));
                assert!(!found.is_usable());
                assert!(Library::named(&library).expect("a library that is named").is_usable());
                mode(path, usual);
            }
        }
        // A sticky directory is accepted further up only.
        mode(&own, 0o1777);
        refused(&library, &format!("others may write to {}", own.display()));
        mode(&own, 0o755);
        mode(&base, 0o1777);
        assert!(found.is_usable() && find(&library).is_ok());
        // A link in a directory that others may write to.
        let link = base.join(NAME);
        symlink(&library, &link).expect("a link");
        refused(&link, &format!("others may write to {}", base.display()));
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: files of another user, because only root can make them");
            return;
        }
        for path in [&library, &own, &base] {
            std::os::unix::fs::chown(path, Some(1000), None).expect("another owner");
            refused(&library, &format!("{} belongs to another user", path.display()));
            std::os::unix::fs::chown(path, Some(0), None).expect("an owner");
        }
        assert!(found.is_usable());
    }
}
