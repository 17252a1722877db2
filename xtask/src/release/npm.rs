//! The packages for npm: `forkless`, and one with the addon for each platform, of which npm installs the right one.

use super::{Build, third_party, zig};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use testing::dist::{output, root, run};

/// Node's name of an architecture, and Rust's.
const PLATFORMS: [(&str, &str); 2] = [("x64", "x86_64"), ("arm64", "aarch64")];

/// Makes the main package, and the package of each platform that rustc can build for here.
///
/// # Errors
/// If cargo, npm or another program fails.
pub(super) fn make(build: &Build, out: &Path) -> Result<()> {
    let from = root().join("bindings/node");
    let package: Value = serde_json::from_str(&fs::read_to_string(from.join("package.json"))?)?;
    let version = env!("CARGO_PKG_VERSION");
    ensure!(package["version"] == version, "bindings/node/package.json has version {}", package["version"]);
    for (node, rust) in PLATFORMS {
        let triple = format!("{rust}-unknown-linux-gnu");
        // rustc prints the directory of the target's libraries, also if they are not installed.
        let libraries = output(Command::new("rustc").args(["--print", "target-libdir", "--target", &triple]))?;
        if Path::new(libraries.trim()).exists() {
            platform(build, &package, node, &triple, out)?;
        } else {
            println!("no npm package for {node}: make it on such a machine, or run rustup target add {triple}");
        }
    }
    let tree = build.trees.join("npm");
    for file in output(Command::new("git").current_dir(&from).args(["ls-files", "-z", "lib", "README.md", "LICENSE*"]))?
        .split_terminator('\0')
    {
        let copy = tree.join(file);
        fs::create_dir_all(copy.parent().context("a directory")?)?;
        fs::copy(from.join(file), copy).with_context(|| file.to_owned())?;
    }
    pack(build, &tree, &main(package), out)
}

/// package.json of the main package: it depends on the packages of all platforms, of which npm skips those for others.
fn main(mut package: Value) -> Value {
    let needed = PLATFORMS.map(|(node, _)| (name(node), json!(env!("CARGO_PKG_VERSION"))));
    package["optionalDependencies"] = Value::Object(needed.into_iter().collect());
    package["files"] = json!(["lib", "LICENSE-APACHE", "LICENSE-MIT", "README.md"]);
    if let Some(package) = package.as_object_mut() {
        // The tests are not shipped.
        package.remove("scripts");
    }
    package
}

/// The name of a platform's package.
fn name(node: &str) -> String {
    format!("forkless-linux-{node}-gnu")
}

/// Makes the package of one platform, with the addon and the licences of what is linked into it.
fn platform(build: &Build, main: &Value, node: &str, triple: &str, out: &Path) -> Result<()> {
    let (name, tree) = (name(node), build.trees.join(format!("npm-{node}")));
    fs::create_dir_all(&tree)?;
    let addon = tree.join("forkless.node");
    fs::copy(zig::release(build, &["forkless-node"], triple)?.join("libforkless_node.so"), &addon)?;
    third_party::write_licences_of("forkless-node", &tree.join("THIRD-PARTY.txt"))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), tree.join(licence)).with_context(|| licence.to_owned())?;
    }
    let readme =
        format!("# {name}\n\nThe addon of the package `forkless` for Linux on {node}. Install `forkless` instead.\n");
    fs::write(tree.join("README.md"), readme)?;
    let package = json!({
        "name": name,
        "version": main["version"],
        "description": format!("The addon of forkless for Linux on {node} with glibc"),
        "license": main["license"],
        "main": "forkless.node",
        "engines": main["engines"],
        "os": ["linux"],
        "cpu": [node],
        "libc": ["glibc"],
        "files": ["forkless.node", "THIRD-PARTY.txt", "LICENSE-APACHE", "LICENSE-MIT", "README.md"],
    });
    pack(build, &tree, &package, out)
}

/// Writes package.json, and makes the tarball.
fn pack(build: &Build, tree: &Path, package: &Value, out: &Path) -> Result<()> {
    fs::write(tree.join("package.json"), serde_json::to_string_pretty(package)? + "\n")?;
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree))?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--ignore-scripts", "--offline", "--pack-destination"]).arg(out);
    // npm prints the name of the tarball.
    output(npm.current_dir(tree).env("SOURCE_DATE_EPOCH", &build.date)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_package_depends_on_each_platform_and_carries_no_addon() {
        let text = fs::read_to_string(root().join("bindings/node/package.json")).expect("package.json");
        let package = main(serde_json::from_str(&text).expect("JSON"));
        let needed = package["optionalDependencies"].as_object().expect("dependencies");
        assert_eq!(needed.keys().collect::<Vec<_>>(), ["forkless-linux-arm64-gnu", "forkless-linux-x64-gnu"]);
        assert!(needed.values().all(|version| *version == package["version"]), "{needed:?}");
        let files = package["files"].as_array().expect("files");
        assert!(!files.contains(&json!("prebuilds")), "{files:?}");
        // What the main package says about architectures is what there are platforms for.
        let cpu = PLATFORMS.map(|(node, _)| node);
        assert_eq!(package["cpu"], json!(cpu));
    }
}
