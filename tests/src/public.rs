//! The public functions of a library and their documentation, read from its sources as rustfmt lays them out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A function that users of the library can call.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its source, from the crate's `src`.
    pub source: String,
    /// `Type::name`, or the name alone outside of an `impl`.
    pub name: String,
    /// Is there a code block in its documentation?
    pub has_example: bool,
}

/// Reads the sources below a crate's `src`, where the files in `roots` say what is public: by `pub use`, or by being a
/// public module themselves. What is `#[doc(hidden)]` is left out.
pub fn functions(src: &Path, roots: &[&str]) -> Vec<Function> {
    let read = |path: &Path| fs::read_to_string(path).expect("a source");
    let public: BTreeSet<String> = roots.iter().flat_map(|root| names(&read(&src.join(root)))).collect();
    let mut found = Vec::new();
    let mut directories = vec![src.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = path.strip_prefix(src).expect("a path below").display().to_string();
                found.extend(of_source(&source, &read(&path), &public));
            }
        }
    }
    found.sort_by(|a, b| (&a.source, &a.name).cmp(&(&b.source, &b.name)));
    found
}

/// What a root declares or exports as public, with its public modules.
pub fn exported(root: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(root).expect("a source");
    let mut found = names(&text);
    let mut is_hidden = false;
    for line in text.lines() {
        let module = line.strip_prefix("pub mod ").filter(|_| !is_hidden);
        found.extend(module.map(|name| name.trim_end_matches(';').to_owned()));
        is_hidden = line == "#[doc(hidden)]" || is_hidden && line.starts_with('#');
    }
    found
}

/// What a root declares or exports as public.
fn names(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut lines = text.lines();
    let mut is_hidden = false;
    while let Some(line) = lines.next() {
        let declared = ["pub struct ", "pub enum ", "pub fn "].iter().find_map(|word| line.strip_prefix(word));
        if let Some(rest) = declared {
            found.extend(rest.split(|letter| !is_part(letter)).next().map(str::to_owned));
        } else if line.starts_with("pub use ") {
            let mut statement = line.to_owned();
            while !statement.ends_with(';') {
                statement.push_str(lines.next().expect("the end of a use"));
            }
            let exported = statement.rsplit("::").next().unwrap_or("");
            if !is_hidden {
                found.extend(
                    exported.split(|letter| !is_part(letter)).filter(|name| !name.is_empty()).map(str::to_owned),
                );
            }
        }
        is_hidden = line == "#[doc(hidden)]";
    }
    found
}

/// An `impl` that has not ended.
struct Owner {
    indent: usize,
    name: String,
    is_public: bool,
}

fn of_source(source: &str, text: &str, public: &BTreeSet<String>) -> Vec<Function> {
    let mut found = Vec::new();
    let mut owner: Option<Owner> = None;
    let (mut has_example, mut is_hidden) = (false, false);
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if let Some(doc) = code.strip_prefix("///") {
            has_example |= doc.trim_start().starts_with("```");
            continue;
        }
        if code.starts_with("#[") {
            is_hidden |= code == "#[doc(hidden)]";
            continue;
        }
        if owner.as_ref().is_some_and(|owner| indent <= owner.indent && code.starts_with('}')) {
            owner = None;
        }
        if let Some(name) = implemented(code) {
            // A macro's name for a type stands for public ones.
            let is_public = !is_hidden && (public.contains(&name) || name.starts_with('$'));
            owner = Some(Owner { indent, name, is_public });
        } else if let Some(name) = function(code) {
            let of_public = owner.as_ref().map_or(indent == 0 && public.contains(name), |owner| owner.is_public);
            if of_public && !is_hidden {
                let name = owner.as_ref().map_or(name.to_owned(), |owner| format!("{}::{name}", owner.name));
                found.push(Function { source: source.to_owned(), name, has_example });
            }
        }
        (has_example, is_hidden) = (false, false);
    }
    found
}

/// The type that an `impl` which is no trait's begins with.
fn implemented(code: &str) -> Option<String> {
    let rest = code.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        // The parameters end where as many are closed as were opened. No arrow stands among ours.
        Some(parameters) => {
            let mut depth = 1;
            let end = parameters.find(|letter| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                depth == 0
            })?;
            &parameters[end + 1..]
        }
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    if rest.contains(" for ") {
        return None;
    }
    let path = rest.split(['<', ' ']).next()?;
    path.rsplit("::").next().map(str::to_owned)
}

/// The name of a public function that begins here.
fn function(code: &str) -> Option<&str> {
    let mut rest = code.strip_prefix("pub ")?;
    while let Some(after) = ["const ", "unsafe ", "async "].iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_functions_are_found_with_their_examples() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a file");
        write("lib.rs", "mod a;\n#[doc(hidden)]\npub use a::secret;\npub use a::{Open, free};\n");
        write(
            "a.rs",
            "pub fn free() {}\npub fn secret() {}\npub fn unreachable() {}\n\
             impl<'a, T: Into<u8>> Open<'a, T> {\n    /// Text.\n    ///\n    /// ```\n    /// ```\n    #[must_use]\n    \
             pub const unsafe fn shown<F>(f: F) {}\n\n    /// Text.\n    pub fn bare(&self) {\n        {\n        }\n    }\n\n    \
             fn own() {}\n    pub(crate) fn inner() {}\n    #[doc(hidden)]\n    pub fn hidden() {}\n}\n\
             impl Iterator for Open {\n    fn next() {}\n}\n#[doc(hidden)]\nimpl Open {\n    pub fn internal() {}\n}\n\
             impl Closed {\n    pub fn closed() {}\n}\n",
        );
        let found = functions(directory.path(), &["lib.rs"]);
        let found: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.has_example)).collect();
        assert_eq!(found, [("Open::bare", false), ("Open::shown", true), ("free", false)]);
    }
}
