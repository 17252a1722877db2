# Lines for /bin/sh by Rakudo's own shell and qx, and by ours, which run many of them without the shell: one table, played with both.
use Test;
use Forkless;
use Forkless::Launch;
use Forkless::Native;

my $place = $*TMPDIR.add("forkless-lines-{$*PID}");
mkdir $place;
END { run('rm', '-r', ~$place).so if $place }

sub file($name, $content, $mode = 0o644) {
    my $file = $place.add($name);
    $content ~~ Blob ?? $file.spurt($content, :bin) !! $file.spurt($content);
    $file.chmod($mode);
}

file 'text', "one\ntwo\n";
file 'plain', "exit 3\n";
file 'own-script', qq[echo "script \$0 \$1"; exit 4\n], 0o755;
file 'hashed', "#!/bin/sh\necho \"hashed \$1\"; exit 5\n", 0o755;
file 'broken', "#!/no/such/interpreter\n", 0o755;
file 'not a program', buf8.new(0x7f, 0x45, 0x4c, 0x46, 9, 9, 9), 0o755;
mkdir $place.add('directory');

my $PATH = %*ENV<PATH> // '/usr/bin:/bin';
sub env(*@pairs, *%more) { %(env => { :$PATH, |%(@pairs), |%more }) }
# SIGHUP, SIGINT and SIGQUIT are left out: README.md, "Lines".
my @signals = <ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE TERM XCPU XFSZ VTALRM SYS>;

# A line, whether it runs without the shell, and the environment.
my @table =
    ['uname -s', True],
    ['  uname   -s  ', True],
    ['uname -s # a comment', True],
    ['ls "text"', True],
    ['ls t\ext', True],
    [Q[env printf '[%s]' '' ' ' '$HOME' "a'b" 'ä€😀' '*'], True],
    ['exec uname -s', True],
    ['exec ls /no/such/file', True],
    ['ls /no/such/file', True],
    ['ls /no/such/file 2>/dev/null', True],
    ['ls text /no/such/file 2>&1', True],
    ['ls text /no/such/file >/dev/null', True],
    ['ls text /no/such/file 2>&1 >/dev/null', True],
    ['ls text /no/such/file >/dev/null 2>&1', True],
    ['cat <text', True],
    ['cat < text > written', True],
    ['cat written', True],
    ['cat <text >>written', True],
    ['wc -c written', True],
    ['cat', True],
    ['cat <&-', False],
    ['ls text >&-', False],
    ['ls /no/such/file 2>&-', False],
    ['grep -c nothing text', True],
    ['env', True, env(Z => '1', A => '2', EMPTY => '', M => 'ä=ö')],
    ['env', True, env(PWD => '/elsewhere', OLDPWD => '/old', HOME => '/', PS1 => 'x')],
    ['A=1 B=2 env', True, env(C => '3', A => '0')],
    ['env', True, env('odd-name' => '1', 'a.b' => '2', _ => '/x', SHLVL => '7')],
    ['env pwd', True],
    ['pwd', False],
    ['ls', False, %(env => { PATH => '' })],
    ['ls text', False, %(env => { A => '1' })],
    ['./hashed x', True],
    ['./own-script x', False],
    ['own-script x', False, %(env => { PATH => ~$place })],
    ['./broken', False],
    ['./plain', False],
    ['./directory', False],
    ["'./not a program'", False],
    ['./missing', False],
    ['no-such-program-xyz a b', False],
    ['no-such-program-xyz 2>/dev/null', False],
    ['no-such-program-xyz 2>&1', False],
    ['cat <missing', False],
    ['ls >directory', False],
    ['ls >/no/such/directory/file', False],
    ['', False],
    ['   ', False],
    ['-x', False],
    ['exit 7', False],
    ['true', False],
    ['echo one two', False],
    ['echo $HOME', False, env(HOME => '/h')],
    ['ls t*', False],
    ['cat text | wc -l', False],
    ['cat text; exit 9', False],
    ['(exit 6)', False],
    ['kill -TERM $$', False],
    ['kill -KILL $$', False],
    ['ls "', False],
    ['ls )', False],
    ["sh -c 'echo out; sleep 0.1; echo err >&2; exit 11'", True],
    ["sh -c 'exit 255'", True],
    [Q[env sh -c 'ulimit -c 0; kill -40 $$'], True],
    [Q[sh -c 'ulimit -c 0; kill -TERM $$' 2>/dev/null], True],
    [Q[sh -c 'ulimit -c 0; echo out; kill -SEGV $$' 2>&1], True],
    [Q[exec sh -c 'ulimit -c 0; kill -TERM $$'], True],
    [Q[sh -c 'echo before >&2; ulimit -c 0; kill -KILL $$'], True],
    [Q[sh -c 'exec 2>&-; ulimit -c 0; kill -KILL $$'], True],
    |@signals.map({ ["sh -c 'ulimit -c 0; kill -$_ \$\$'", True] });

# Later Rakudos have QX without a directory and an environment.
my $core-qx = &CORE::QX;
my $short-qx = -> $line, :$cwd, :$env { indir($cwd, { my %*ENV = $env // %*ENV; $core-qx($line) }) };
my %core = shell => &CORE::shell, qx => $core-qx.signature.params.grep(*.named) ?? $core-qx !! $short-qx;
my %ours = shell => &shell, qx => &QX;

sub look(Proc $proc) {
    my %seen;
    %seen<out> = $proc.out.slurp(:close).raku if $proc.out;
    %seen<err> = $proc.err.slurp(:close).raku if $proc.err;
    %seen{'exitcode', 'signal', 'command'} = $proc.exitcode, $proc.signal, $proc.command.raku;
    %seen.sort.gist
}

# The line in all forms.
sub play(%with, $line, %options is copy) {
    %options<cwd> = ~$place;
    my $log = $place.add('log');
    my $to = $log.open(:w);
    $place.add('written').spurt("one\ntwo\n");
    my @seen = look(%with<shell>($line, :!in, :out, :err, |%options)), look(%with<shell>($line, :!in, :merge, |%options)),
        look(%with<shell>($line, :!in, :out($to), :err($to), |%options));
    $to.close;
    @seen.push($log.slurp.raku);
    @seen.push(%with<qx>("$line", |%options).raku) unless $line eq 'cat';
    @seen.push($place.add('written').slurp.raku);
    # Rakudo passes the variables in any order.
    $line.ends-with('env') ?? @seen.map({ .split(/'\n' | '"'/).sort.List }).List !! @seen.List
}

my $is-dash = '/bin/sh'.IO.resolve.basename eq 'dash';

for @table -> [$line, $is-direct, %options = {}] {
    is-deeply play(%ours, $line, %options), play(%core, $line, %options), $line.raku;
    next unless $is-dash;
    my $child = launch('/bin/sh', ('/bin/sh', '-c', $line), %options<env> // %*ENV, ~$place, Null, Null, Null, :line);
    is $child.route eq 'directly', $is-direct, "{$line.raku}: {$child.route}";
    sleep 0.001 until $child.try-wait.defined;
    $child.free;
}

subtest 'a message behind more than the pipe holds, which nobody reads yet' => {
    for :%ours, :%core -> (:$key, :value(%with)) {
        my $proc = %with<shell>(Q[sh -c 'head -c 100000 /dev/zero >&2; ulimit -c 0; kill -KILL $$'], :err);
        sleep 0.3;
        my $text = $proc.err.slurp(:close);
        is $text.chars, 100_000 + ($is-dash ?? 7 !! 0), "$key: all of it";
        is $text.substr(*-7), "Killed\n", "$key: the message is last" if $is-dash;
        is $proc.exitcode, 137, "$key: exit code" if $is-dash;
    }
}

subtest 'the output of a line that another program reads' => {
    my $line = Q[sh -c 'ulimit -c 0; echo a; kill -KILL $$' 2>&1];
    is run('cat', :in(shell($line, :out).out), :out).out.slurp(:close), $is-dash ?? "a\nKilled\n" !! "a\n", 'has the message, too';
}

done-testing;
