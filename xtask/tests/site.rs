//! The site is made, and its links lead somewhere.

testing::usual_surroundings!();

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use xtask::site;

/// The site's pages; none where it cannot be made.
fn made() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's");
        let mandoc = Command::new("mandoc").arg("-T").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !site::has_mdbook(own) || !mandoc {
            let why =
                if mandoc { "mdBook is not installed: run cargo xtask site once" } else { "mandoc is not installed" };
            let _ = writeln!(std::io::stderr(), "SKIPPED: the site because {why}");
            return None;
        }
        Some(site::make(own).unwrap_or_else(|error| panic!("{error:#}")))
    });
    made.as_deref()
}

/// `make` follows every link.
#[test]
fn the_site_is_made_and_its_links_hold() {
    let Some(html) = made() else { return };
    let pages = [
        "index.html",
        "docs/faq.html",
        "docs/tour/rust.html",
        "commands/forkless-run.html",
        "rust/forkless/index.html",
    ];
    for page in pages {
        assert!(html.join(page).exists(), "{page}");
    }
}

/// Loads pages in frames of a phone's and a desk's width, in light and dark, and writes what it finds.
const PROBE: &str = r#"
const pages = ['index.html', 'docs/faq.html', 'docs/settings.html', 'docs/tour/c.html', 'commands/forkless-run.html'];
const found = {};
const load = (name, page, width, scheme) => new Promise((done) => {
  const frame = document.createElement('iframe');
  frame.style = `width:${width}px;height:900px;border:0;color-scheme:${scheme}`;
  frame.onload = () => setTimeout(() => {
    const page = frame.contentDocument, root = page.documentElement;
    found[name] = {
      wide: frame.contentWindow.innerWidth, scroll: root.scrollWidth, text: page.querySelector('main').innerText.length,
      paper: frame.contentWindow.getComputedStyle(root).backgroundColor, links: page.querySelectorAll('nav a').length,
      results: page.querySelectorAll('#mdbook-searchresults li, #searchresults li').length };
    frame.remove();
    done();
  }, 1500);
  frame.src = page;
  document.body.append(frame);
});
addEventListener('load', async () => {
  for (const page of pages) {
    await load('phone ' + page, page, 390, 'light');
    await load('desk ' + page, page, 1440, 'light');
  }
  await load('night', 'index.html', 1440, 'dark');
  await load('search', 'index.html?search=zygote', 1440, 'light');
  await load('nothing', 'index.html?search=qqqxqqq', 1440, 'light');
  await load('broken', 'broken.html', 390, 'light');
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
"#;

/// A page of which the probe must say that it is too wide.
const BROKEN: &str =
    "<!doctype html><meta name=viewport content='width=device-width'><main style='width:800px'>wide</main>";

#[test]
fn pages_fit_a_phone_and_a_desk_and_can_be_searched() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's");
    let chromium = Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success());
    let Some(html) = made().filter(|_| chromium) else {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: the site in a browser because it is not made or chromium is missing");
        return;
    };
    // Beside the site's own files, from which it may load pages; and in none of them.
    let place = own.join("site/probed");
    let _ = std::fs::remove_dir_all(&place);
    let copied = Command::new("cp").arg("-R").arg(html).arg(&place).status().expect("cp");
    assert!(copied.success());
    std::fs::write(place.join("broken.html"), BROKEN).expect("writable");
    let harness = place.join("probe.html");
    std::fs::write(&harness, format!("<!doctype html><meta charset=utf-8><body><script>{PROBE}</script>"))
        .expect("writable");
    let mut browser = Command::new("timeout");
    browser.args([
        "300",
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-sync",
    ]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files"]);
    browser.args(["--virtual-time-budget=120000", "--window-size=1600,1200", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", own.join("site/profile").display()));
    // No name is resolved: the site must do without a network.
    browser.arg("--host-resolver-rules=MAP * ~NOTFOUND").arg(format!("file://{}", harness.display()));
    let output = browser.output().expect("timeout");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("no answer of the probe: {}", String::from_utf8_lossy(&output.stderr)));
    let found: serde_json::Value = serde_json::from_str(found).expect("JSON");
    let number = |name: &str, key: &str| found[name][key].as_u64().unwrap_or_else(|| panic!("{name} {key}: {found}"));
    let fits = |name: &str| number(name, "scroll") <= number(name, "wide");
    let pages: Vec<&String> = found.as_object().expect("pages").keys().filter(|name| name.contains(".html")).collect();
    assert_eq!(pages.len(), 10, "{pages:?}");
    for name in pages {
        assert!(fits(name) && number(name, "text") > 200 && number(name, "links") > 30, "{name}: {}", found[name]);
    }
    assert_ne!(found["night"]["paper"], found["desk index.html"]["paper"], "the dark page is light");
    assert!(number("search", "results") > 3, "{}", found["search"]);
    // Negative controls.
    assert_eq!(number("nothing", "results"), 0);
    assert!(!fits("broken"), "{}", found["broken"]);
}
