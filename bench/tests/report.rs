//! `forkless bench report` and `compare` with real records, and the page in a real browser.

testing::usual_surroundings!();

mod rows;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rows::{multiply, rows};
use serde_json::Value;

/// Time limit of the browser, which takes seconds, or longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The committed record.
fn record() -> PathBuf {
    root().join("bench/record/2026-11-22")
}

fn forkless(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forkless-bench")).args(words).output().expect("forkless starts")
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Writes the page of a record to a directory.
fn report(record: &Path, out: &Path) -> Output {
    let output = forkless(&["report", &text(record), "--out", &text(out)]);
    assert!(output.status.success(), "{output:?}");
    output
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// Checks in each frame: its width, elements that stick out, that every chart is drawn with tooltips, and that no text covers another.
const PROBE: &str = r#"
const look = async frame => {
  const win = frame.contentWindow, doc = frame.contentDocument, root = doc.documentElement;
  doc.querySelectorAll('details').forEach(details => details.open = true);
  const box = element => { const b = element.getBoundingClientRect(); return [b.width, b.height]; };
  const charts = [...doc.querySelectorAll('figure svg')];
  const drawn = charts.filter(svg => {
    const [width, height] = box(svg);
    const marks = [...svg.querySelectorAll('path,polyline,text')];
    return width > 200 && height > 60 && marks.length > 8 && svg.getBBox().width > 200;
  });
  const visible = element => getComputedStyle(element).display !== 'none';
  const out = [...doc.querySelectorAll('body *')].filter(element => visible(element) && !element.closest('.scroll')
    && !element.closest('svg') && element.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + '.' + e.className);
  const named = svg => [...svg.querySelectorAll('title')].filter(title => title.textContent.includes(': ')).length;
  const untold = charts.filter(svg => named(svg) < 2).length;
  const overlaps = charts.flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
    return boxes.flatMap(([name, box], at) => boxes.slice(at + 1).filter(([, other]) => over(box, other)).map(([other]) => name + '/' + other));
  });
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const paper = win.getComputedStyle(doc.body).backgroundColor;
  const faint = [...doc.querySelectorAll('figure svg text')].map(t => [t.textContent, contrast(win.getComputedStyle(t).fill, paper)])
    .filter(([, ratio]) => ratio < 4.5).map(([words, ratio]) => `${words} ${ratio.toFixed(2)}`);
  return { wide: root.clientWidth, scroll: root.scrollWidth, out, charts: charts.length, drawn: drawn.length, untold, overlaps, paper, faint };
};
window.errors = [];
addEventListener('load', async () => {
  const found = {};
  try {
    for (const frame of document.querySelectorAll('iframe')) found[frame.name] = await look(frame);
  } catch (error) { window.errors.push(String(error)); }
  const pre = document.createElement('pre');
  pre.id = 'found';
  pre.textContent = btoa(unescape(encodeURIComponent(JSON.stringify({ found, errors }))));
  document.body.append(pre);
});
"#;

/// A page with the report in frames of two widths, light and dark, that reports what it finds. The frames contain the report in
/// an attribute, because a page may not read files beside it.
fn harness(page: &str) -> String {
    let watched = page.replacen(
        "<head>",
        "<head><script>addEventListener('error', e => parent.errors.push(e.message));\
         console.error = (...w) => parent.errors.push(w.join(' '));</script>",
        1,
    );
    let quoted = watched.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |name: &str, width: u32, scheme: &str| {
        format!(
            "<iframe name=\"{name}\" style=\"width:{width}px;height:900px;border:0;color-scheme:{scheme}\" srcdoc=\"{quoted}\"></iframe>"
        )
    };
    let frames = [frame("phone", 390, "light"), frame("desk", 1440, "light"), frame("night", 1440, "dark")];
    format!("<!doctype html><meta charset=utf-8><script>{PROBE}</script><body>{}", frames.concat())
}

/// The browser, if installed.
fn chromium() -> Option<&'static str> {
    let here = |name: &&str| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser"].into_iter().find(here)
}

/// The DOM after the scripts have run, and the browser's log.
fn browse(chromium: &str, page: &Path) -> (String, String) {
    let profile = directory();
    let (dom, log) = (profile.path().join("dom"), profile.path().join("log"));
    let mut command = Command::new(chromium);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--window-size=1600,1200"]);
    command.arg(format!("--user-data-dir={}", profile.path().join("profile").display())).arg("--dump-dom");
    command.arg(format!("file://{}", page.display()));
    command.stdout(fs::File::create(&dom).expect("file")).stderr(fs::File::create(&log).expect("file"));
    let mut child = command.env("HOME", profile.path()).spawn().expect("the browser starts");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the browser hangs: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (fs::read_to_string(&dom).expect("the page"), fs::read_to_string(&log).expect("the log"))
}

/// The result of the probe, and the lines of the console.
fn probed(chromium: &str, page: &str) -> (Value, Vec<String>) {
    let place = directory();
    let file = place.path().join("harness.html");
    fs::write(&file, harness(page)).expect("written");
    let (dom, log) = browse(chromium, &file);
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("no answer of the probe: {log}"));
    let console = log.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    (serde_json::from_slice(&decoded(found)).expect("JSON"), console)
}

/// Decodes base64 as written by btoa.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> =
        text.bytes().filter_map(|byte| LETTERS.iter().position(|letter| *letter == byte)).map(|d| d as u32).collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

/// The faults of a page, as text.
fn faults(found: &Value, console: &[String], charts: usize) -> Vec<String> {
    let mut faults: Vec<String> = console.to_vec();
    faults.extend(found["errors"].as_array().into_iter().flatten().map(|error| format!("script: {error}")));
    for (name, wide) in [("phone", 390), ("desk", 1440), ("night", 1440)] {
        let frame = &found["found"][name];
        let mut must = |is_so: bool, words: String| {
            if !is_so {
                faults.push(format!("{name}: {words}"));
            }
        };
        let scrolls = frame["scroll"].as_u64().unwrap_or(u64::MAX) > frame["wide"].as_u64().unwrap_or(0);
        must(
            frame["wide"].as_u64().is_some_and(|have| have <= wide && have + 20 >= wide),
            format!("{}", frame["wide"]),
        );
        must(!scrolls && frame["out"] == serde_json::json!([]), format!("wider than it may be: {}", frame["out"]));
        must(frame["charts"] == charts && frame["drawn"] == charts, format!("{} of {charts} drawn", frame["drawn"]));
        must(frame["faint"] == serde_json::json!([]), format!("hard to read: {}", frame["faint"]));
        must(frame["untold"] == 0, format!("{} charts without tooltips", frame["untold"]));
        must(frame["overlaps"] == serde_json::json!([]), format!("text over text: {}", frame["overlaps"]));
    }
    if found["found"]["night"]["paper"] == found["found"]["desk"]["paper"] {
        faults.push("the dark page is light".to_owned());
    }
    faults
}

#[test]
fn page_is_readable_in_a_browser() {
    let Some(chromium) = chromium() else {
        return eprintln!("SKIPPED: the page in a browser, because chromium is not installed");
    };
    let out = directory();
    report(&record(), out.path());
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    let charts = page.matches("<svg role=\"img\"").count();
    assert!(charts > 20, "{charts}");
    let (found, console) = probed(chromium, &page);
    assert_eq!(faults(&found, &console, charts), Vec::<String>::new());

    // Negative control: the probe finds planted faults.
    let broken = page
        .replacen("<h1>", "<h1 style=\"width:1500px\">", 1)
        .replacen("</main>", "<script>console.error('odd');nothing.at.all()</script></main>", 1)
        .replacen("</svg>", "<text x=\"90\" y=\"90\">one</text><text x=\"95\" y=\"91\">two</text></svg>", 1);
    // The last chart is not drawn.
    let (before, last) = broken.rsplit_once("role=\"img\"").expect("a chart");
    let broken = format!("{before}role=\"img\" style=\"display:none\"{last}");
    let (found, console) = probed(chromium, &broken);
    let faults = faults(&found, &console, charts).join("\n");
    let hidden = format!("{} of {charts} drawn", charts - 1);
    for part in ["odd", "nothing is not defined", "phone: wider", "desk: wider", "one/two", &hidden] {
        assert!(faults.contains(part), "{part} is not found: {faults}");
    }
}

#[test]
fn report_writes_page_and_plots_and_prints_a_summary() {
    let out = directory();
    let output = report(&record(), out.path());
    let words = String::from_utf8(output.stdout).expect("text");
    for part in ["Summary", "Slower than the fastest alternative", "99th percentile", "vfork baseline", "index.html"] {
        assert!(words.contains(part), "{part} is missing in {words}");
    }
    for (file, colour) in
        [("memory", "#0072B2"), ("memory-dark", "#56B4E9"), ("threads", "#0072B2"), ("alive-dark", "#D55E00")]
    {
        let svg = fs::read_to_string(out.path().join(file).with_extension("svg")).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains(colour), "{file}: {svg}");
    }
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    let record: Value =
        serde_json::from_slice(&fs::read(record().join("results.json")).expect("a record")).expect("JSON");
    for row in rows(&record).iter().take(15) {
        let time = row["total_p50_us"].as_f64().expect("a time");
        let exact = if time < 99.95 { format!("<td>{time:.1}") } else { format!("<td>{time:.0}") };
        assert!(time > 999.0 || page.contains(&exact), "{exact} is not on the page");
    }
}

/// Rows of a launcher that has been removed since are on the page, and are compared.
#[test]
fn rows_of_a_removed_launcher_are_shown_and_compared() {
    let place = directory();
    let text_of = fs::read_to_string(record().join("results.json")).expect("a record");
    let older = place.path().join("results.json");
    fs::write(&older, text_of.replace("\"forkless-launch\"", "\"forkless-once\"")).expect("written");
    let out = place.path().join("page");
    report(&older, &out);
    let page = fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(page.contains("forkless-once") && !page.contains("forkless-launch<"), "its rows are not on the page");
    let compared = forkless(&["compare", &text(&older), &text(&record())]);
    assert!(compared.status.success(), "{compared:?}");
}

/// A user who can write to the directory must not be able to redirect writes to other files by links.
#[test]
fn symbolic_links_in_the_output_directory_are_not_followed() {
    let place = directory();
    let [plain, linked, victim] = ["plain", "linked", "victim"].map(|name| place.path().join(name));
    report(&record(), &plain);
    fs::create_dir(&linked).expect("a directory");
    fs::write(&victim, "precious").expect("a file");
    let names = |place: &Path| {
        let entries = fs::read_dir(place).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        entries.collect::<BTreeSet<_>>()
    };
    assert!(names(&plain).len() > 8, "{:?}", names(&plain));
    for name in names(&plain) {
        symlink(&victim, linked.join(name)).expect("a link");
    }
    report(&record(), &linked);
    assert!(fs::read(&victim).expect("a file") == b"precious", "the report wrote through a symbolic link");
    assert_eq!(names(&plain), names(&linked));
    let mode = fs::metadata(&victim).expect("a file").mode();
    for name in names(&linked) {
        let about = |place: &Path| fs::symlink_metadata(place.join(&name)).expect("a file");
        assert_eq!((about(&linked).mode(), about(&linked).len()), (mode, about(&plain).len()), "{name:?}");
    }
}

#[test]
fn several_records_become_one_page_with_out() {
    let out = directory();
    let other = out.path().join("other.json");
    changed(&record(), &other, |_, _| 1.1);
    let records = [text(&record()), text(&other)];
    let words = ["report", &records[0], &records[1]];
    let refused = forkless(&words);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--out"), "{refused:?}");
    let output = forkless(&[&words[..], &["--out", &text(out.path())]].concat());
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    assert!(page.contains("id=\"memory\"") && page.contains("id=\"r2-memory\""));
    assert!(!out.path().join("memory.svg").exists(), "plots are written for a single record only");

    let missing = forkless(&["report", &text(&out.path().join("nowhere"))]);
    assert_eq!(missing.status.code(), Some(1));
}

/// The figures in README.md are those of the record whose plots it shows, as the command writes them.
#[test]
fn readme_has_the_figures_of_its_record() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let picture = |name: &str| {
        let end = readme.find(&format!("/{name}.svg\"")).unwrap_or_else(|| panic!("no picture {name}.svg"));
        let start = readme[..end].rfind('"').expect("an attribute") + 1;
        readme[start..end].to_owned()
    };
    let record = picture("files");
    let copy = directory();
    let place = copy.path().join(&record);
    fs::create_dir_all(&place).expect("directory");
    fs::copy(root().join(&record).join("results.json"), place.join("results.json")).expect("the record");
    let file = copy.path().join("README.md");
    let emptied = |text: &str| {
        let (before, rest) = text.split_once("readme` -->\n").expect("a mark");
        let (_, after) = rest.split_once("<!-- end of figures -->").expect("a mark");
        format!("{before}readme` -->\n<!-- end of figures -->{after}")
    };
    fs::write(&file, emptied(&readme)).expect("written");
    let output = forkless(&["report", "--readme", &text(&file), &text(&place)]);
    assert!(output.status.success(), "{output:?}");
    let again = "run: cargo run --release -- bench report --readme README.md RECORD";
    assert_eq!(fs::read_to_string(&file).expect("README"), readme, "{again}");
    for name in ["files", "files-dark"] {
        let svg = |place: &Path| fs::read_to_string(place.join(name).with_extension("svg")).expect("a picture");
        // Without the pictures, which are long.
        assert!(svg(&place) == svg(&root().join(&record)), "{name}.svg is not what the record gives: {again}");
    }
}

/// Writes a record with each time multiplied by a factor that depends on launcher and row.
fn changed(from: &Path, to: &Path, factor: impl Fn(&str, usize) -> f64) {
    let mut record: Value =
        serde_json::from_slice(&fs::read(from.join("results.json")).expect("a record")).expect("JSON");
    multiply(&mut record, |name, index, column| column.ends_with("_us").then(|| factor(name, index)));
    for (index, row) in record["alive"].as_array_mut().expect("rows").iter_mut().enumerate() {
        let by = factor(row["waiter"].as_str().expect("a name"), index);
        for (_, value) in row.as_object_mut().expect("a row").iter_mut().filter(|(name, _)| name.ends_with("_us")) {
            *value = (value.as_f64().expect("a number") * by).into();
        }
    }
    fs::write(to, record.to_string()).expect("written");
}

#[test]
fn compare_reports_only_changes_beyond_the_noise() {
    let place = directory();
    let (same, noisy, slower) =
        (place.path().join("same.json"), place.path().join("noisy.json"), place.path().join("slower.json"));
    changed(&record(), &same, |_, _| 1.0);
    // Two percent up and down, on a machine that is half as fast.
    changed(&record(), &noisy, |_, index| 2.0 * (1.0 + 0.02 * ((index * 7919 % 3) as f64 - 1.0)));
    let ours = ["forkless-status", "forkless-wait-set"];
    // The bounds with many children alive are wider, so the change must be larger.
    changed(&record(), &slower, |launcher, _| match launcher {
        "forkless-status" => 1.2,
        "forkless-wait-set" => 1.4,
        _ => 1.0,
    });
    let compare =
        |after: &Path, more: &[&str]| forkless(&[&["compare", &text(&record()), &text(after)], more].concat());
    for unchanged in [&same, &noisy] {
        let output = compare(unchanged, &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("0 of "), "{output:?}");
    }
    let output = compare(&slower, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("slower") && !words.contains("faster") && !words.contains("forkless-spawn"), "{words}");

    let output = compare(&slower, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = found["figures"].as_array().expect("figures");
    assert_eq!(found["compared"], figures.len());
    // A change within the bounds of the record itself is not reported.
    let is_sure = |side: &Value| {
        let end = |name: &str| side[name].as_f64().expect("a number");
        end("high") / end("low") < 1.08
    };
    let mut called = 0;
    for figure in figures {
        let is_slower = ours.iter().any(|name| figure["launcher"] == *name);
        if is_slower && is_sure(&figure["before"]) && is_sure(&figure["after"]) {
            assert_eq!(figure["verdict"], "slower", "{figure}");
            called += 1;
        } else if is_slower {
            assert_ne!(figure["verdict"], "faster", "{figure}");
        } else {
            assert_eq!(figure["verdict"], "same", "{figure}");
        }
    }
    assert!(called > 0, "{found}");
    let of_the_set = figures.iter().filter(|figure| figure["launcher"] == ours[1] && figure["verdict"] == "slower");
    assert!(of_the_set.count() > 0, "CPU time or latency, with few or many children");
    let tolerated = compare(&slower, &["--tolerance=50"]);
    assert_eq!(tolerated.status.code(), Some(0), "{tolerated:?}");
}

#[test]
fn records_that_cannot_be_compared_exit_with_2() {
    let place = directory();
    let nothing = place.path().join("nothing.json");
    fs::write(&nothing, r#"{"version": 3, "machine": {}, "rows": [], "alive": []}"#).expect("written");
    let older = place.path().join("older.json");
    fs::write(&older, r#"{"version": 2, "machine": {}, "rows": [], "alive": []}"#).expect("written");
    for words in [
        ["compare", &text(&record()), &text(&nothing)],
        ["compare", "/nowhere", &text(&record())],
        ["compare", &text(&older), &text(&record())],
    ] {
        let output = forkless(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(forkless(&["compare", &text(&record())]).status.code(), Some(2));
}
