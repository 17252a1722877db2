//! Dependencies between the files of a crate, found by searching for paths in the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module by its path from the crate's root; empty: the root.
type Module = Vec<String>;

/// The files of a crate, and for each the ones that it names.
#[derive(Debug, Default)]
pub struct Modules {
    names: BTreeMap<Module, BTreeSet<Module>>,
}

impl Modules {
    /// Reads the sources below a crate's `src`.
    pub fn read(src: &Path) -> Self {
        let mut texts = BTreeMap::new();
        collect(src, &mut Vec::new(), &mut texts);
        let names = texts.iter().map(|(module, text)| (module.clone(), named(module, text, &texts))).collect();
        Self { names }
    }

    /// The same for folders: the first part of each name.
    #[must_use]
    pub fn folders(&self) -> Self {
        let mut names: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        let first = |module: &Module| -> Module { module.iter().take(1).cloned().collect() };
        for (module, needed) in &self.names {
            let own = first(module);
            let others = needed.iter().map(first).filter(|other| *other != own);
            names.entry(own.clone()).or_default().extend(others);
        }
        // The root has what users name; it is above all.
        names.remove(&Module::default());
        names.values_mut().for_each(|needed| _ = needed.remove(&Module::default()));
        Self { names }
    }

    /// The circles: sets of files each of which leads to all the others; the largest first.
    pub fn circles(&self) -> Vec<BTreeSet<Module>> {
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.names.keys().map(|module| (module, self.reached(module))).collect();
        let mut circles = BTreeSet::new();
        for (module, there) in &reached {
            let circle: BTreeSet<Module> =
                there.iter().filter(|other| reached[*other].contains(*module)).cloned().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached(&self, from: &Module) -> BTreeSet<Module> {
        let (mut found, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(self.names[module].iter().filter(|other| found.insert((*other).clone())));
        }
        found
    }
}

/// The code of each file, without comments and without its tests.
fn collect(directory: &Path, module: &mut Module, texts: &mut BTreeMap<Module, String>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let is_root = ["lib", "main", "mod"].contains(&name.as_str());
        if path.is_dir() {
            module.push(name);
            collect(&path, module, texts);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
            let end = tests.iter().filter_map(|words| text.find(words)).min().unwrap_or(text.len());
            let code: Vec<&str> = text[..end].lines().map(|line| line.split("//").next().unwrap_or("")).collect();
            let of: Module = module.iter().cloned().chain((!is_root).then_some(name)).collect();
            texts.insert(of, code.join("\n"));
        }
    }
}

/// The modules that a file's paths lead to.
fn named(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut note = |mut path: Module| {
        while !all.contains_key(&path) {
            path.pop();
        }
        if path != *module {
            found.insert(path);
        }
    };
    let children: Vec<&str> =
        text.split("mod ").skip(1).filter_map(|rest| rest.split_once(';')).map(|(name, _)| name).collect();
    let base = |first: &str| match first {
        "crate" => Some(Vec::new()),
        "self" => Some(module.clone()),
        "super" => Some(parent(module)),
        child => children.contains(&child).then(|| module.iter().cloned().chain([child.to_owned()]).collect()),
    };
    let (uses, code) = uses_apart(text);
    for path in uses.iter().filter_map(|path| path.split_once("::")) {
        if let Some(base) = base(path.0.trim()) {
            follow(base, path.1, &mut note);
        }
    }
    for (end, _) in code.match_indices("::") {
        let start = code[..end].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |n| n + 1);
        if let Some(base) = base(&code[start..end]).filter(|_| !code[..start].ends_with("::")) {
            follow(base, &code[end + 2..], &mut note);
        }
    }
    found
}

/// The paths of the `use` statements, and the rest of the text.
fn uses_apart(text: &str) -> (Vec<String>, String) {
    let (mut uses, mut code, mut open) = (Vec::new(), String::new(), None::<String>);
    for line in text.lines() {
        let begins = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        let path = match open.take() {
            Some(before) => before + line,
            None => match begins.iter().find_map(|word| line.trim_start().strip_prefix(word)) {
                Some(path) => path.to_owned(),
                None => {
                    code.push_str(line);
                    code.push('\n');
                    continue;
                }
            },
        };
        match path.strip_suffix(';') {
            Some(path) => uses.push(path.to_owned()),
            None => open = Some(path),
        }
    }
    (uses, code)
}

fn parent(module: &[String]) -> Module {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// Resolves what follows `::`: a name, or a group in braces.
fn follow(base: Module, rest: &str, note: &mut impl FnMut(Module)) {
    if let Some(group) = rest.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        for (n, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                '}' | ',' if depth == 0 => {
                    let item = group[start..n].trim();
                    if !item.is_empty() {
                        step(base.clone(), item, note);
                    }
                    start = n + 1;
                    if letter == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    step(base, rest, note);
}

/// One name, and what follows it.
fn step(mut base: Module, rest: &str, note: &mut impl FnMut(Module)) {
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    match &rest[..length] {
        "" | "self" => {}
        "super" => base = parent(&base),
        name => base.push(name.to_owned()),
    }
    match rest[length..].strip_prefix("::") {
        Some(rest) => follow(base, rest, note),
        None => note(base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_through_groups_and_parents() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        };
        write("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n");
        write("a.rs", "use super::{\n    b::{B, self},\n    c::C,\n};\n");
        write("b/mod.rs", "mod d;\nuse std::fmt;\n// use crate::c::C;\n");
        write("b/d.rs", "use super::super::a::A;\nfn f() { crate::c::g() }\n");
        write("c.rs", "pub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n");
        let modules = Modules::read(directory.path());
        let to = |path: &[&str]| -> Module { path.iter().map(|&name| name.to_owned()).collect() };
        assert_eq!(modules.names[&to(&["a"])], [to(&["b"]), to(&["c"])].into());
        assert_eq!(modules.names[&to(&["b", "d"])], [to(&["a"]), to(&["c"])].into());
        assert!(modules.circles().is_empty(), "{:?}", modules.circles());
        write("b/mod.rs", "mod d;\npub use d::D;\n");
        assert_eq!(Modules::read(directory.path()).circles(), [[to(&["a"]), to(&["b"]), to(&["b", "d"])].into()]);
    }
}
