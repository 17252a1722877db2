# For the lines of suites.toml: functions that fetch, and stand-ins.

# debian NAME=VERSION: the source of a Debian package, with its patches, in src.
debian() {
    apt-get -q --download-only source "$1" && dpkg-source --no-check -x ./*.dsc src
}

# pristine NAME: the source without Debian's patches, in src.
pristine() {
    apt-get -q --download-only --tar-only source "$1" && mkdir src && tar -xf ./*.orig.tar.* -C src --strip-components 1
}

# sdist NAME==VERSION: the source distribution of a Python package in src, and its dependencies in venv.
sdist() {
    "$PYTHON" -m venv venv && venv/bin/pip -q install pytest==9.2.0 "$@" &&
        venv/bin/pip -q download --no-deps --no-binary :all: "$1" && mkdir src && tar -xf ./*.tar.gz -C src --strip-components 1 &&
        cp -r "$(dirname "$PYTHON")"/../lib/python3*/site-packages/forkless venv/lib/python3*/site-packages/
}

# conftest: pytest with $OURS installs forkless.
conftest() {
    printf 'import os\nif os.environ.get("OURS"):\n    import forkless\n    assert forkless.install()\n' >src/conftest.py
}

# crates NAME VERSION…: the sources of crates: the first in stock, all in ours with forkless in the place of std::process.
crates() {
    empty_crate scratch && cd scratch || return
    local all=("$@") n
    for ((n = 0; n < $#; n += 2)); do cargo add -q "${all[n]}@=${all[n + 1]}" || return; done
    cargo vendor -q --versioned-dirs >/dev/null && cd .. && cp -r "scratch/vendor/$1-$2" stock && cp -r stock ours || return
    for ((n = 2; n < $#; n += 2)); do
        mkdir -p ours/swapped && cp -r "scratch/vendor/${all[n]}-${all[n + 1]}" "ours/swapped/${all[n]}" && swap "ours/swapped/${all[n]}"
    done
    swap ours && printf '\n[workspace]\n' | tee -a stock/Cargo.toml >>ours/Cargo.toml
    for ((n = 2; n < $#; n += 2)); do
        printf '[patch.crates-io.%s]\npath = "swapped/%s"\n' "${all[n]}" "${all[n]}" >>ours/Cargo.toml
    done
}

# empty_crate DIRECTORY: a crate that is no member of our workspace.
empty_crate() {
    mkdir -p "$1/src" && : >"$1/src/lib.rs" &&
        printf '[package]\nname = "scratch"\nedition = "2021"\n\n[features]\ndefault = ["full", "process"]\nfull = []\nprocess = []\n\n[workspace]\n' >"$1/Cargo.toml"
}

# A dependency with the name std hides std.
swap() {
    rm -f "$1/Cargo.lock" "$1/.cargo-checksum.json"
    printf '\n[dependencies.std]\npackage = "forkless_std"\npath = "%s/std"\n' "$(shims)" >>"$1/Cargo.toml"
}

# The crates that stand in for std and tokio.
shims() {
    local place=$PWD/shims name feature
    for name in std tokio; do
        mkdir -p "$place/$name/src"
        case $name in std) feature= ;; tokio) feature=', features = ["tokio"]' ;; esac
        {
            printf '[package]\nname = "forkless_%s"\nversion = "0.0.0"\nedition = "2021"\n\n[features]\nfull = []\n' $name
            printf '\n[dependencies]\nforkless = { path = "%s/crates/forkless"%s }\n' "$ROOT" "$feature"
            [ $name = std ] || echo 'tokio = { version = "=1.54.1", features = ["full"] }'
        } >"$place/$name/Cargo.toml"
        printf 'pub use ::%s::*;\npub use forkless%s as process;\n' $name "$([ $name = std ] || echo ::tokio)" >"$place/$name/src/lib.rs"
    done
    echo "$place"
}

# stand_in FILE SUBCOMMAND: FILE runs the subcommand of forkless.
stand_in() {
    rm -f "$1" && printf '#!/bin/sh\nexec %s/bin/forkless %s "$@"\n' "$INSTALLED" "$2" >"$1" && chmod +x "$1"
}

# perl_lib: a directory lib as perl's tests want it, from the installed perl of the same version.
perl_lib() {
    mkdir lib && for directory in $(perl -e 'print "@INC[-3,-2]"'); do cp -rsn "$directory"/. lib/; done
}
