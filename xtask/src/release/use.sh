# The Debian packages of the command and the shared libraries, as a user has them.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }
# `! command` would not end the script.
fails() { if "$@" >/dev/null 2>&1; then echo "packages: this must fail: $*" >&2; exit 1; fi; }
fails command -v gcc
fails command -v make

dpkg -i packages/forkless_*.deb packages/libforkless0_*.deb packages/libforkless-preload_*.deb >/dev/null
forkless --version
test "$(forkless run A=1 sh -c 'echo "$A"')" = 1
status=0
forkless run --timeout 0.1 sleep 60 || status=$?
test "$status" = 124
test "$(forkless parallel -k echo ::: a b c | tr '\n' ' ')" = 'a b c '
test "$(printf 'a b' | forkless xargs -n 1 echo | wc -l)" = 2
for page in forkless forkless-run forkless-parallel forkless-bench; do
    gzip -dc "/usr/share/man/man1/$page.1.gz" | grep -q '^\.TH'
done
grep -q forkless /usr/share/bash-completion/completions/forkless
grep -q forkless /usr/share/zsh/vendor-completions/_forkless
grep -q forkless /usr/share/fish/vendor_completions.d/forkless.fish
grep -q MIT /usr/share/doc/forkless/copyright
gzip -dc /usr/share/doc/forkless/THIRD-PARTY.txt.gz | grep -q Apache
forkless bench --version | grep -q forkless
say 'the command works'

ldconfig -p | grep -q libforkless.so.0
ldconfig -p | grep -q libpopen_noshell.so.0
say 'the linker finds the libraries'

# Perl's system() and a pipe, through the preload library. Its messages would go to standard error.
test "$(LD_PRELOAD=libforkless_preload.so perl -e 'system("echo a; echo b"); open(P, "-|", "cat /etc/hostname") or die; print <P>' 2>&1 | head -2 | tr '\n' ' ')" = 'a b '
say 'a program runs with the preload library'

dpkg -r forkless libforkless0 libforkless-preload >/dev/null
test ! -e /usr/bin/forkless
test -z "$(find /usr -name '*forkless*')"
say 'nothing is left after removal'
