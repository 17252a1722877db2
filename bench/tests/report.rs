//! `forkless bench report` and `compare` with real records, and the page in a real browser.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

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

/// The committed record of `forkless bench background`.
fn background() -> PathBuf {
    root().join("bench/record/2026-11-21-background")
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

/// Checks in each frame: its width, elements that stick out, that every chart is drawn, and the tooltip of a value.
const PROBE: &str = r#"
const look = async frame => {
  const win = frame.contentWindow, doc = frame.contentDocument, root = doc.documentElement;
  doc.querySelectorAll('details').forEach(details => details.open = true);
  const box = element => { const b = element.getBoundingClientRect(); return [b.width, b.height]; };
  const charts = [...doc.querySelectorAll('figure svg')];
  const drawn = charts.filter(svg => {
    const [width, height] = box(svg);
    const marks = [...svg.querySelectorAll('circle,polyline,text')];
    return width > 200 && height > 60 && marks.length > 8 && svg.getBBox().width > 200;
  });
  const visible = element => getComputedStyle(element).display !== 'none';
  const out = [...doc.querySelectorAll('body *')].filter(element => visible(element) && !element.closest('.scroll')
    && !element.closest('svg') && element.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + '.' + e.className);
  const shown = [];
  for (const svg of charts) {
    svg.scrollIntoView({ block: 'center' });
    const [x, y] = svg.dataset.spots.split(/[ ,]/).map(Number);
    const place = new win.DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    const at = { clientX: place.x, clientY: place.y, bubbles: true, pointerType: 'mouse' };
    svg.dispatchEvent(new win.PointerEvent('pointermove', at));
    const tip = doc.querySelector('.tip');
    const t = tip.getBoundingClientRect();
    const names = [...tip.children].map(block => block.textContent.split(' · ')[0]);
    const once = new Set(names).size === names.length;
    shown.push({ words: tip.hidden ? '' : tip.textContent, inside: t.left >= 0 && t.right <= root.clientWidth, once });
  }
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const paper = win.getComputedStyle(doc.body).backgroundColor;
  const faint = [...doc.querySelectorAll('figure svg text')].map(t => [t.textContent, contrast(win.getComputedStyle(t).fill, paper)])
    .filter(([, ratio]) => ratio < 4.5).map(([words, ratio]) => `${words} ${ratio.toFixed(2)}`);
  return { wide: root.clientWidth, scroll: root.scrollWidth, out, charts: charts.length, drawn: drawn.length, shown, paper, faint };
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
        let shown = frame["shown"].as_array().cloned().unwrap_or_default();
        let has_words = |tip: &Value| tip["words"].as_str().is_some_and(|words| words.contains(" · "));
        let told = |tip: &Value| tip["inside"] == true && tip["once"] == true && has_words(tip);
        let untold: Vec<&Value> = shown.iter().filter(|tip| !told(tip)).collect();
        must(shown.len() == charts && untold.is_empty(), format!("no value under the pointer: {untold:?}"));
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
    let without = fs::read_to_string(out.path().join("index.html")).expect("a page");
    let words = ["report", &text(&record()), "--background", &text(&background()), "--out", &text(out.path())];
    let output = forkless(&words);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    let charts_of = |page: &str| page.matches("<svg role=\"img\"").count();
    let charts = charts_of(&page);
    assert!(charts > 20, "{charts}");
    assert_eq!(charts - charts_of(&without), 4, "three graphs of the background, and one of them again without fork");
    let (found, console) = probed(chromium, &page);
    assert_eq!(faults(&found, &console, charts), Vec::<String>::new());

    // Negative control: the probe finds planted faults.
    let broken = page
        .replacen("<h1>", "<h1 style=\"width:1500px\">", 1)
        .replacen("</main>", "<script>console.error('odd');nothing.at.all()</script></main>", 1)
        .replacen("role=\"img\"", "role=\"img\" style=\"display:none\"", 1);
    // The last graph belongs to the background.
    let (before, last) = broken.rsplit_once("role=\"img\"").expect("a graph");
    let broken = format!("{before}role=\"img\" style=\"display:none\"{last}");
    let (found, console) = probed(chromium, &broken);
    let faults = faults(&found, &console, charts).join("\n");
    for part in
        ["odd", "nothing is not defined", "phone: wider", "desk: wider", &format!("{} of {charts} drawn", charts - 2)]
    {
        assert!(faults.contains(part), "{part} is not found: {faults}");
    }
}

#[test]
fn report_writes_page_and_plots_and_prints_a_summary() {
    let out = directory();
    let output = report(&record(), out.path());
    let words = String::from_utf8(output.stdout).expect("text");
    for part in [
        "Results on this machine",
        "Slower than the fastest alternative",
        "99th percentile",
        "Slower than the vfork baseline",
        "index.html",
    ] {
        assert!(words.contains(part), "{part} is missing in {words}");
    }
    for picture in ["memory", "files", "threads", "small", "alive"] {
        let read = |ending: &str| fs::read(out.path().join(picture).with_extension(ending)).expect("a picture");
        assert!(read("png").starts_with(b"\x89PNG") && read("svg").starts_with(b"<svg"));
        let dark = fs::read_to_string(out.path().join(format!("{picture}-dark.svg"))).expect("a picture");
        assert!(dark.contains("fill=\"#16181B\""), "{picture}");
    }
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    let rows: Value =
        serde_json::from_slice(&fs::read(record().join("results.json")).expect("a record")).expect("JSON");
    for row in rows["rows"].as_array().expect("rows").iter().take(15) {
        let exact = format!("total {} µs", with_commas(row["total_p50_us"].as_f64().expect("a time")));
        assert!(page.contains(&exact), "{exact} is not on the page");
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
fn background_shows_published_and_measured_figures() {
    let place = directory();
    let [beside, out] = ["record", "page"].map(|name| place.path().join(name));
    fs::create_dir(&beside).expect("a directory");
    fs::copy(record().join("results.json"), beside.join("results.json")).expect("a record");
    fs::copy(background().join("background.json"), beside.join("background.json")).expect("a record");
    report(&beside, &out);
    let page = fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(page.contains("href=\"#background\"") && page.contains("id=\"background\""));
    let quoted = |text: &Value| {
        let text = text.as_str().expect("text").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        text.replace('"', "&quot;")
    };
    let known: Value =
        serde_json::from_slice(&fs::read(background().join("background.json")).expect("a record")).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let figure = |value: &Value| {
        let value = value.as_f64().expect("a figure");
        if value < 99.95 { format!("{value:.1}") } else { with_commas(value.round()) }
    };
    for row in list(&known["tables"]).iter().flat_map(|table| list(&table["rows"])) {
        let named = format!("<th scope=\"row\">{}</th>", quoted(&row["name"]));
        let reason = format!("<td class=\"why\">{}</td>", quoted(&row["reason"]));
        let lines: Vec<&str> = page.lines().filter(|line| line.contains(&named) && line.contains(&reason)).collect();
        let figures = [list(&row["published"]), list(&row["here"])].concat();
        let has = |line: &&str| figures.iter().all(|value| line.contains(&format!(">{}</td>", figure(value))));
        assert!(lines.iter().any(has), "{row} is not on the page: {lines:?}");
    }
    let tips = page.split("id=\"words\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("tooltips");
    let tips: Vec<String> = serde_json::from_str(tips).expect("JSON");
    for curve in list(&known["curves"]) {
        for line in list(&curve["lines"]) {
            for point in list(&line["points"]) {
                let thousandths = (point[1].as_f64().expect("a time") * 1e3).round() / 1e3;
                let x = with_commas(point[0].as_f64().expect("a number"));
                let plain = |text: &Value| text.as_str().expect("text").to_owned();
                let at = format!("{} · {x} {}\n", plain(&line["name"]), plain(&curve["x"]));
                let words = tips.iter().find_map(|tip| tip.strip_prefix(&at)).and_then(|rest| rest.strip_suffix(" µs"));
                assert_eq!(words, Some(with_commas(thousandths).as_str()), "{at}");
            }
        }
    }

    fs::write(beside.join("background.json"), "{}").expect("written");
    let refused = forkless(&["report", &text(&beside), "--out", &text(&out)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("background.json"), "{refused:?}");
    let missing = forkless(&["report", &text(&record()), "--out", &text(&out), "--background", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    report(&record(), &out);
    assert!(!fs::read_to_string(out.join("index.html")).expect("a page").contains("id=\"background\""));
}

fn with_commas(value: f64) -> String {
    let text = value.to_string();
    match text.split_once('.') {
        Some((whole, part)) if whole.len() > 3 => {
            let (thousands, rest) = whole.split_at(whole.len() - 3);
            format!("{thousands},{rest}.{part}")
        }
        None if text.len() > 3 => {
            let (thousands, rest) = text.split_at(text.len() - 3);
            format!("{thousands},{rest}")
        }
        _ => text,
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
    assert!(!out.path().join("memory.png").exists(), "plots are written for a single record only");

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
    for list in ["rows", "alive"] {
        change(record[list].as_array_mut().expect("rows"), &factor);
    }
    fs::write(to, record.to_string()).expect("written");
}

fn change(rows: &mut [Value], factor: impl Fn(&str, usize) -> f64) {
    for (index, row) in rows.iter_mut().enumerate() {
        let name = row.get("launcher").or_else(|| row.get("waiter")).and_then(Value::as_str);
        let by = factor(name.expect("a name"), index);
        for field in row.as_object_mut().expect("a row").iter_mut() {
            if let Some(value) = field.1.as_f64().filter(|_| field.0.ends_with("_us")) {
                *field.1 = (value * by).into();
            }
        }
    }
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
    fs::write(&nothing, r#"{"version": 2, "machine": {}, "rows": []}"#).expect("written");
    for words in [["compare", &text(&record()), &text(&nothing)], ["compare", "/nowhere", &text(&record())]] {
        let output = forkless(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(forkless(&["compare", &text(&record())]).status.code(), Some(2));
}
