# The Raku distribution, as a user has it: zef runs its tests, and installs it.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }

dpkg -i packages/libforkless0_*.deb >/dev/null
export PATH="$PATH:$(raku -e 'print $*REPO.repo-chain.grep(CompUnit::Repository::Installation)».prefix.map(* ~ "/bin").join(":")')"
tar -xzf packages/raku-Forkless-*.tar.gz -C /tmp
# A directory, not a name to look up. zef unpacks only archives that it has downloaded.
zef install --verbose /tmp/Forkless-*/
rm -r /tmp/Forkless-*/
cd /
cat >/tmp/use.raku <<'END'
use Forkless;
use Forkless::Proc::Async;
my $proc = run 'echo', 'said', :out;
die 'run' unless $proc.out.slurp(:close) eq "said\n";
die 'shell' unless shell('exit 3').exitcode == 3;
my $cat = Forkless::Proc::Async.new('sh', '-c', 'echo later; exit 4');
my $text = '';
$cat.stdout.tap({ $text ~= $_ });
die 'Proc::Async' unless (await $cat.start).exitcode == 4 && $text eq "later\n";
say 'used';
END
test "$(raku /tmp/use.raku)" = used
zef uninstall Forkless
dpkg -r libforkless0 >/dev/null
say 'the Raku distribution works'
