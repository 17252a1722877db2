//! Where `libforkless_warm.so` is.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libforkless_warm.so";

/// The directories of packages and of `cargo xtask dist`.
const INSTALLED: [&str; 4] =
    ["/usr/local/lib/forkless", "/usr/lib/x86_64-linux-gnu/forkless", "/usr/lib/forkless", "/usr/lib64/forkless"];

/// The path as `/proc/PID/maps` shows it, if `LD_PRELOAD` can name it.
pub(super) fn checked(path: &Path) -> io::Result<PathBuf> {
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

/// The library, by the search that [`WarmOptions::library`](super::WarmOptions::library) describes.
pub(super) fn find() -> io::Result<PathBuf> {
    let places = places(own_file().as_deref());
    match places.iter().find(|path| path.exists()) {
        Some(path) => checked(path),
        None => {
            let listed: Vec<_> = places.iter().filter_map(|path| path.parent()?.to_str()).collect();
            let why = format!("{NAME} was not found (searched: {})", listed.join(", "));
            Err(io::Error::new(io::ErrorKind::NotFound, why))
        }
    }
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
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
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

    #[test]
    fn the_search_begins_beside_this_code() {
        let own = own_file().expect("a file");
        assert_eq!(own, std::env::current_exe().expect("a program"));
        assert_eq!(places(Some(&own))[0], own.with_file_name(NAME));
        let of_command = places(Some(Path::new("/opt/x/bin/forkless")));
        assert_eq!(of_command[2], Path::new("/opt/x/lib/forkless").join(NAME));
        assert_eq!(of_command.len(), 4 + INSTALLED.len());
    }
}
