//! The site is made, and its links lead somewhere.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use xtask::site;

#[test]
fn the_site_is_made_and_its_links_hold() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's");
    let mandoc = Command::new("mandoc").arg("-V").output().is_ok() || Command::new("mandoc").arg("-?").output().is_ok();
    if !site::has_mdbook(own) || !mandoc {
        let why = if mandoc { "mdBook is not installed: run cargo xtask site once" } else { "mandoc is not installed" };
        let _ = writeln!(std::io::stderr(), "SKIPPED: the site because {why}");
        return;
    }
    let html = site::make(own).unwrap_or_else(|error| panic!("{error:#}"));
    for page in
        ["index.html", "docs/faq.html", "docs/tour/rust.html", "commands/forkless-run.html", "rust/forkless/index.html"]
    {
        assert!(html.join(page).exists(), "{page}");
    }
}
