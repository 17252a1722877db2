//! Programs that call fork or clone themselves: the library does not affect them.

use super::compare::Place;

fn untouched(place: &Place, words: &[&str], shown: &str) {
    let (seen, log) = place.compare(words);
    assert!(seen.out.contains(shown), "{seen:?}");
    assert!(log.0.is_empty(), "{:#?}", log.0);
}

#[test]
fn bash() {
    let Some(place) = Place::for_programs(&["bash"]) else { return };
    let script = "echo $(uname -s) `id -u | wc -l`; coproc cat; echo both >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x\n\
                  cat <(echo substituted); (exit 3); echo $?; nonesuch; echo $?; { sh -c 'kill -9 $$'; } 2>/dev/null; echo $?; sleep 0 & wait $!; exit 9\n";
    untouched(&place.file("script", script), &["bash", "script"], "both\nsubstituted\n3\n127\n137\n");
}

#[test]
fn perl() {
    let Some(place) = Place::for_programs(&["perl"]) else { return };
    let script = "$| = 1; print `uname -s`, system('uname -s'), system('echo $((1+1))'), system('exit 3') >> 8, qq(\\n);\n\
                  open(my $in, '-|', 'ls', '-a'); print <$in>; close $in; open(my $out, '|-', 'tr a-z A-Z'); print $out qq(up\\n);\n\
                  close $out; print system('kill -9 $$'), qq(\\n); system('nonesuch'); exit 9\n";
    untouched(&place.file("script", script), &["perl", "script"], "UP\n9\n");
}

#[test]
fn node() {
    let Some(place) = Place::for_programs(&["node"]) else { return };
    let script = "const c = require('child_process');\n\
                  for (const line of ['uname -s', 'exit 3', 'nonesuch', 'kill -9 $$']) {\n\
                    const r = c.spawnSync('sh', ['-c', line]); console.log(line, r.status, r.signal, `${r.stdout}${r.stderr}`);\n\
                  }\n\
                  console.log(`${c.execSync('cat', {input: 'given'})}`, c.spawnSync('/nonexistent').error.code);\n";
    let (seen, log) = place.file("script.js", script).compare(&["node", "script.js"]);
    assert!(seen.out.contains("given ENOENT\n"), "{seen:?}");
    // libuv forks, or from 1.53 on launches by posix_spawn.
    let taken = log.0.iter().filter(|line| line.starts_with("posix_spawn(")).count();
    assert!([0, 5].contains(&taken) && log.0.len() == taken, "{:#?}", log.0);
}

#[test]
fn git() {
    let Some(place) = Place::for_programs(&["git"]) else { return };
    let script = "set -e; export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000' GIT_CONFIG_NOSYSTEM=1\n\
                  git init -q -b main .; git config user.name n; git config user.email e@x; git config alias.up '!uname -s | tr a-z A-Z'\n\
                  printf '#!/bin/sh\\necho hook $1\\n' > .git/hooks/commit-msg; chmod +x .git/hooks/commit-msg\n\
                  git config filter.up.clean 'tr a-z A-Z'; echo '*.txt filter=up' > .gitattributes; echo text > a.txt\n\
                  git add .; git commit -q -m message 2>&1; git show HEAD:a.txt; git up; GIT_PAGER='sed s/^/paged:/' git -p log --format=%s\n\
                  git clone -q . copy 2>&1; git -C copy log --format=%H%n%s; git gc -q; git archive HEAD | tar t\n";
    untouched(&place.file("script", script), &["sh", "script"], "TEXT\nLINUX\n");
}
