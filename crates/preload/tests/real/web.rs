//! lighttpd, with CGI programs run directly and through fcgiwrap. Both fork; the CGI programs themselves launch through
//! the library.

use super::compare::{Log, Place, Way, split};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = include_str!("scripts/lighttpd.conf");
const PROGRAMS: [(&str, &str); 2] =
    [("cgi.lua", include_str!("scripts/cgi.lua")), ("cgi.sh", include_str!("scripts/cgi.sh"))];

/// A server and its process group.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let group = self.0.id() as i32;
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            // SAFETY: a group whose leader has not been waited for.
            unsafe { libc::killpg(group, signal) };
            let end = Instant::now() + Duration::from_secs(5);
            while signal == libc::SIGTERM && matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
                sleep(Duration::from_millis(10));
            }
        }
        let _ = self.0.wait();
    }
}

/// Both servers, which are killed when this is dropped.
struct Site {
    root: PathBuf,
    _servers: [Server; 2],
}

impl Site {
    fn start(place: &Place, way: Way) -> Self {
        let root = place.outside().join("site");
        let _ = fs::remove_dir_all(&root);
        for directory in ["cgi", "wrapped"] {
            fs::create_dir_all(root.join("www").join(directory)).expect("a directory");
            for (name, text) in PROGRAMS {
                let file = root.join("www").join(directory).join(name);
                fs::write(&file, text).expect("a file");
                fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("a mode");
            }
        }
        fs::write(root.join("www/plain.txt"), "text\n").expect("a file");
        fs::write(root.join("lighttpd.conf"), CONFIGURATION).expect("a file");
        let configuration = root.join("lighttpd.conf").display().to_string();
        let wrapped = format!("unix:{}", root.join("fcgi").display());
        let start = |words: &[&str]| {
            let mut command = Command::new("/usr/bin/timeout");
            // The limit is for a test that is killed and leaves the servers behind.
            command.args(["--foreground", "-k", "5", "200"]).args(words).current_dir(&root).process_group(0);
            place.put(&mut command, way);
            let log = if matches!(way, Way::Logged | Way::Off) { "1" } else { "" };
            let switch = if way == Way::Off { "off" } else { "" };
            command.env("ROOT", &root).env("LOG", log).env("SWITCH", switch);
            let file = || File::options().create(true).append(true).open(root.join("said")).expect("a file");
            Server(
                command
                    .stdin(File::open("/dev/null").expect("null"))
                    .stdout(file())
                    .stderr(file())
                    .spawn()
                    .expect("timeout"),
            )
        };
        let servers =
            [start(&["fcgiwrap", "-c", "4", "-s", &wrapped]), start(&["lighttpd", "-D", "-f", &configuration])];
        let site = Self { root, _servers: servers };
        let end = Instant::now() + Duration::from_secs(60);
        while !["http", "fcgi"].iter().all(|socket| UnixStream::connect(site.root.join(socket)).is_ok()) {
            assert!(Instant::now() < end, "{}", site.output());
            sleep(Duration::from_millis(20));
        }
        site
    }

    /// The standard error of the servers and their programs.
    fn output(&self) -> String {
        let read = |name: &&str| fs::read_to_string(self.root.join(name)).unwrap_or_default();
        ["said", "errors", "broken"].iter().map(read).collect()
    }

    /// The response, without dates.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.root.join("http")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.0\r\nHost: here\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer
            .lines()
            .filter(|line| !["Date:", "ETag:", "Last-Modified:"].iter().any(|name| line.starts_with(name)))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Makes all requests. Returns the responses and the log lines of the library.
fn visit(place: &Place, way: Way) -> (Vec<String>, Log) {
    let site = Site::start(place, way);
    let mut seen = vec![site.ask("GET", "/plain.txt", ""), site.ask("GET", "/cgi/nothing", "")];
    for directory in ["cgi", "wrapped"] {
        let ask = |method, rest: &str, body| site.ask(method, &format!("/{directory}/{rest}"), body);
        seen.push(ask("GET", "cgi.lua?a=b", ""));
        seen.push(ask("POST", "cgi.lua", "given to it\n"));
        for query in ["", "status", "fails", "killed"] {
            seen.push(ask("GET", &format!("cgi.sh?{query}"), ""));
        }
        // Several requests at the same time.
        let many = scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|n| scope.spawn(move || ask("GET", &format!("cgi.lua?{n}"), ""))).collect();
            threads.into_iter().map(|thread| thread.join().expect("an answer")).collect::<Vec<_>>()
        });
        seen.extend(many);
    }
    let log = split(&site.output()).1;
    (seen, log)
}

#[test]
fn lighttpd_and_fcgiwrap() {
    let Some(place) = Place::for_programs(&["lighttpd", "fcgiwrap", "lua5.4"]) else { return };
    let (expected, none) = visit(&place, Way::Without);
    assert!(none.0.is_empty(), "{:#?}", none.0);
    for answer in [&expected[2], &expected[16]] {
        assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.contains("from  /bin/echo\nLINUX\n"), "{expected:#?}");
    }
    for way in [Way::With, Way::Off, Way::Logged] {
        let (seen, log) = visit(&place, way);
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{way:?}");
        }
        if way != Way::Logged {
            assert!(log.0.is_empty(), "{way:?}: {:#?}", log.0);
            continue;
        }
        // Ten requests with each setting.
        let launches = 20;
        assert_eq!(
            log.count("system", "/bin/echo 'from  /bin/echo'", super::compare::DIRECT),
            launches,
            "{:#?}",
            log.0
        );
        assert_eq!(log.count("popen", "uname -s | tr a-z A-Z", super::compare::SHELL), launches, "{:#?}", log.0);
    }
}
