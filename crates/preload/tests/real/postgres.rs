//! Creates a PostgreSQL cluster, runs it, and recovers it from its archive.

use super::compare::{DIRECT, Log, Place, SHELL, Way, say, split};
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SQL: &str = include_str!("scripts/all.sql");

/// A cluster: its directory, programs and user.
struct Cluster<'a> {
    place: &'a Place,
    way: Way,
    /// The programs of the newest installed version.
    programs: PathBuf,
    /// PostgreSQL refuses to run as root.
    user: Option<(u32, u32)>,
    server: Option<Child>,
}

impl Drop for Cluster<'_> {
    /// Kills the server with its whole process group.
    fn drop(&mut self) {
        self.stop(libc::SIGQUIT);
    }
}

impl Cluster<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.place.outside().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        // `timeout` forwards signals. The limit is for a test that is killed and leaves the server behind.
        command.args(["--foreground", "-k", "5", "300"]);
        if let Some((user, group)) = self.user {
            command.args(["setpriv", &format!("--reuid={user}"), &format!("--regid={group}"), "--clear-groups"]);
        }
        command.arg(self.programs.join(program)).current_dir(self.path("work"));
        self.place.put(&mut command, self.way);
        command
            .env("LC_ALL", "C")
            .env("PGHOST", self.path("work"))
            .env("PGUSER", "owner")
            .env("PGDATABASE", "postgres");
        command
    }

    /// Runs one of its programs: status, output, errors, and the log lines of the library.
    fn run(&self, program: &str, words: &[&str]) -> (String, Log) {
        let output = self.command(program).args(words).output().expect("timeout");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (err, log) = split(&text(&output.stderr));
        (format!("{}\n{}{err}", output.status, text(&output.stdout)), log)
    }

    fn sql(&self, text: &str) -> String {
        self.run("psql", &["-X", "-q", "-t", "-A", "-c", text]).0
    }

    /// Waits until this query has this result.
    fn until(&self, question: &str, answer: &str) {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let found = self.sql(question);
            if found.contains(answer) {
                return;
            }
            assert!(Instant::now() < end, "{question}: {found}\n{}", self.log());
            sleep(Duration::from_millis(100));
        }
    }

    fn start(&mut self) {
        let log = || File::options().create(true).append(true).open(self.path("log")).expect("a file");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.path("work/data")).arg("-k").arg(self.path("work"));
        let settings =
            ["listen_addresses=", "log_line_prefix=", "fsync=off", "archive_mode=on", "max_files_per_process=200"];
        for setting in settings {
            command.args(["-c", setting]);
        }
        self.server = Some(command.stdout(log()).stderr(log()).spawn().expect("timeout"));
        self.until("select 'it' || ' answers'", "it answers");
    }

    fn stop(&mut self, signal: i32) {
        let Some(mut server) = self.server.take() else { return };
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(server.id() as i32, signal) };
        let end = Instant::now() + Duration::from_secs(60);
        while matches!(server.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Writes a file of the cluster.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
        if let Some((user, group)) = self.user {
            chown(self.path(name), Some(user), Some(group)).expect("an owner");
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// The directory of the newest version in Debian.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(|path| number(path))?;
    Some(newest.join("bin")).filter(|programs| programs.join("postgres").exists() && programs.join("initdb").exists())
}

/// The user and group to run as, if this is root: those of the package, or nobody.
fn user() -> Option<(u32, u32)> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.find(|fields| fields[0] == "postgres" && fields.len() > 3);
    found.and_then(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?))).or(Some((65534, 65534)))
}

/// Does initdb(1) find a name for the user it would run as?
fn has_name() -> bool {
    // SAFETY: no arguments.
    let id = user().map_or_else(|| unsafe { libc::geteuid() }, |(id, _)| id).to_string();
    Command::new("getent").args(["passwd", &id]).output().is_ok_and(|output| output.status.success())
}

/// Runs a cluster through all its stages. Returns its visible results and the log lines of the library.
fn live(place: &Place, way: Way, programs: &Path) -> (Vec<String>, Log) {
    let mut cluster = Cluster { place, way, programs: programs.to_owned(), user: user(), server: None };
    let work = cluster.path("work");
    let _ = fs::remove_dir_all(&work);
    let _ = fs::remove_file(cluster.path("log"));
    fs::create_dir_all(work.join("archive")).expect("a directory");
    fs::write(work.join("all.sql"), SQL).expect("a file");
    if let Some((user, group)) = cluster.user {
        for path in [&work, &work.join("archive")] {
            chown(path, Some(user), Some(group)).expect("an owner");
        }
    }
    let mut seen = Vec::new();
    let data = work.join("data");
    let (made, mut told) =
        cluster.run("initdb", &["-D", data.to_str().expect("UTF-8"), "-A", "trust", "-N", "-U", "owner"]);
    assert!(made.starts_with("exit status: 0\n"), "{made}");
    seen.push(made);

    let archive = work.join("archive").display().to_string();
    cluster.start();
    let (out, log) = cluster.run("psql", &["-X", "-a", "-f", "all.sql"]);
    seen.push(out);
    told.0.extend(log.0);
    seen.extend(archive_fails(&cluster, "exit 3", "exit code 3"));
    seen.extend(archive_fails(&cluster, "nonesuch %p", "exit code 127"));
    archive_with(&cluster, &format!("cp \"%p\" {archive}/%f"));
    cluster.until("select archived_count > 2 from pg_stat_archiver", "\nt\n");
    cluster.stop(libc::SIGINT);

    // The server now replays its archive and then begins a new timeline.
    cluster.write("work/data/recovery.signal", "");
    let settings = format!("restore_command = 'cp {archive}/%f \"%p\"'\nrecovery_target_timeline = 'latest'\n");
    let file = fs::read_to_string(data.join("postgresql.auto.conf")).expect("settings");
    cluster.write("work/data/postgresql.auto.conf", &(file + &settings));
    cluster.start();
    cluster.until("select pg_is_in_recovery()", "\nf\n");
    cluster.until("select archived_count > 0 from pg_stat_archiver", "\nt\n");
    let rows = cluster
        .sql("select count(*), (select count(*) from n), (select timeline_id from pg_control_checkpoint()) from t");
    seen.push(rows);
    cluster.stop(libc::SIGINT);
    let (plain, log) = split(&cluster.log());
    assert!(plain.contains("archive recovery complete"), "{plain}");
    assert_eq!(plain.matches("database system is shut down").count(), 2, "{plain}");
    told.0.extend(log.0);
    (seen, told)
}

/// Sets the archive command, and writes data to archive.
fn archive_with(cluster: &Cluster, command: &str) {
    cluster.sql(&format!("alter system set archive_command = '{command}'"));
    cluster.sql("select pg_reload_conf()");
    cluster.until("show archive_command", command);
    cluster.sql("insert into n values (1)");
    cluster.sql("select pg_switch_wal()");
}

/// The server's messages about a failed archive command.
fn archive_fails(cluster: &Cluster, command: &str, how: &str) -> Vec<String> {
    archive_with(cluster, command);
    let end = Instant::now() + Duration::from_secs(120);
    let told = format!("archive command failed with {how}\n");
    while !cluster.log().contains(&told) {
        assert!(Instant::now() < end, "{}", cluster.log());
        sleep(Duration::from_millis(50));
    }
    let log = split(&cluster.log()).0;
    log.lines().filter(|line| line.contains("archive command")).map(str::to_owned).take(2).collect()
}

#[test]
fn postgres() {
    let Some(programs) = programs() else {
        say("SKIPPED: postgres because it is not installed");
        return;
    };
    if !has_name() {
        say("SKIPPED: postgres because its initdb needs a user with a name");
        return;
    }
    let Some(place) = Place::for_programs(&["psql", "setpriv"]) else { return };
    let (expected, none) = live(&place, Way::Without, &programs);
    assert!(none.0.is_empty(), "{:#?}", none.0);
    for way in [Way::Logged, Way::Stdio] {
        let (seen, log) = live(&place, way, &programs);
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{way:?}");
        }
        assert_eq!(seen.len(), expected.len());
        let has = |function: &str, part: &str, how: &str| {
            let found =
                log.0.iter().any(|line| line.starts_with(function) && line.contains(part) && line.contains(how));
            assert!(found, "{way:?}: no {function}(…{part}…) … {how} in {:#?}", log.0);
        };
        has("popen(", "bin/postgres", "pid");
        has("popen(\"seq 5\"", "", DIRECT);
        has("popen(\"cat > unsorted\"", "", DIRECT);
        has("popen(\"exit 3\"", "", SHELL);
        has("popen(\"sort -r\"", "", DIRECT);
        has("popen(\"wc -l\"", "", DIRECT);
        has("system(\"uname -s\"", "", DIRECT);
        has("system(\"exit 3\"", "", SHELL);
        has("system(\"nonesuch pg_wal/", "", SHELL);
        has("system(\"cp \\\"pg_wal/", "/archive/0000", DIRECT);
        has("system(\"cp /", "/archive/0000", DIRECT);
    }
}
