# Programs on a pseudo-terminal.
use Test;
use Forkless::Proc::Async;
use Forkless::Pty;
use X::Forkless;

# The status of the program and what came on the screen.
sub screen($pty, *@words, :&meanwhile) {
    my $text = '';
    my $done = False;
    $pty.Supply().tap({ $text ~= $_ }, done => { $done = True });
    my $proc = Forkless::Proc::Async.new(|@words);
    my $end = $proc.start(:$pty);
    meanwhile() if &meanwhile;
    my $status = await $end;
    ok $done, 'the screen is done when start is';
    ($status, $text)
}

sub terminals { dir('/proc/self/fd').grep({ try .resolve ~~ / ^ '/dev/pt' / }).elems }

my $pty = Forkless::Pty.new(:30rows, :100columns);
like $pty.path, /^ '/dev/pts/' \d+ $/, 'it has a path';
is-deeply $pty.size, (30, 100), 'and a size';
my $path = $pty.path;
is terminals(), 3, 'and descriptors: two of this side, one of the other';
my $line = 'tty; stty size; test $(ps -o sid= -p $$) = $$ && echo s; test -t 1 && echo yes >/dev/tty; exit 3';
my ($status, $text) = screen($pty, 'sh', '-c', $line);
is $text, "$path\n30 100\ns\nyes\n", 'a program has the terminal';
is $status.exitcode, 3, 'its status';

subtest 'what is typed is read' => {
    my $pty = Forkless::Pty.new;
    $pty.echo(False);
    my ($, $text) = screen($pty, 'wc', '-l', meanwhile => {
        await $pty.print("one\ntwo\n");
        $pty.send-eof;
    });
    is $text.trim, '2', 'and its end';
    my $plain = Forkless::Pty.new;
    my $bytes = buf8.new;
    $plain.Supply(:bin).tap({ $bytes ~= $_ });
    await Forkless::Proc::Async.new('printf', 'a\nb\377').start(pty => $plain);
    is-deeply $bytes, buf8.new("a\r\nb".encode.list, 255), ':bin';
    my $raw = Forkless::Pty.new;
    $raw.make-raw;
    throws-like { $raw.send-eof }, X::Forkless, message => /'send-eof'/, 'raw mode has no end';
    is screen($raw, 'head', '-c3', meanwhile => { await $raw.write(Blob.new(4, 3, 65)) })[1], "\x[04]\x[03]A", 'and passes all bytes';
}

subtest 'a dialogue' => {
    my $pty = Forkless::Pty.new;
    $pty.echo(False);
    my $answers = Channel.new;
    $pty.Supply.lines.tap({ $answers.send($_) });
    my $end = Forkless::Proc::Async.new('sh', '-c', 'while read x; do echo "<$x>"; done; trap "stty size; exit" WINCH; echo; while :; do sleep 0.01; done').start(:$pty);
    for 1..3 {
        await $pty.print("$_\n");
        is $answers.receive, "<$_>", "answer $_";
    }
    $pty.send-eof;
    is $answers.receive, '', 'and the end';
    $pty.resize(50, 120);
    is $answers.receive, '50 120', 'a new size is told';
    is (await $end).exitcode, 0, 'it ends';
}

subtest 'streams that are set stay' => {
    my $pty = Forkless::Pty.new;
    my $proc = Forkless::Proc::Async.new('sh', '-c', 'test -t 0 && echo out; echo err >&2');
    my ($out, $screen) = '' xx 2;
    $proc.stdout.tap({ $out ~= $_ });
    $pty.Supply.tap({ $screen ~= $_ });
    await $proc.start(:$pty);
    is-deeply ($out, $screen), ("out\n", "err\n"), 'standard output';
}

is screen(Forkless::Pty.new, 'seq', '100000')[1].lines.elems, 100_000, 'nothing of long output is lost';
is screen(Forkless::Pty.new, 'sh', '-c', 'exec >/dev/null 2>&1 </dev/null; sleep 0.3; echo late >/dev/tty')[1], "late\n",
    'a program that closes it and opens it again';
is screen(Forkless::Pty.new, 'sh', '-c', 'kill -9 $$')[0].signal, 9, 'a signal';

subtest 'after the end' => {
    my $pty = Forkless::Pty.new;
    screen($pty, 'true');
    throws-like { $pty.resize(1, 1) }, X::Forkless, message => /'the terminal failed or has ended'/, 'a method throws';
    throws-like { await $pty.print('x') }, X::Forkless, 'nothing is typed';
    throws-like { await Forkless::Proc::Async.new('true').start(:$pty) }, X::Forkless, message => /'has been used'/, 'it serves one start';
}

subtest 'what does not start' => {
    my $pty = Forkless::Pty.new;
    my $quit = Promise.new;
    $pty.Supply.tap({ ; }, quit => { $quit.keep($_) });
    throws-like { await Forkless::Proc::Async.new('/no/such').start(:$pty) }, X::Forkless, 'an exception';
    isa-ok await($quit), X::Forkless, 'and the supply quits';
    throws-like { await $pty.print('x') }, X::Forkless, 'nothing is typed';
}

subtest 'a launch that is tried twice' => {
    # A script without #!, whose first launch fails.
    my $script = $*TMPDIR.add("forkless-raku-pty-{$*PID}");
    $script.spurt("echo script\n");
    $script.chmod(0o755);
    LEAVE $script.unlink;
    try screen(Forkless::Pty.new, ~$script);
    is terminals(), 0, 'no descriptor is left';
}

subtest 'typed data that nobody reads' => {
    my $pty = Forkless::Pty.new;
    $pty.make-raw;
    $pty.Supply.tap({ ; });
    my $end = Forkless::Proc::Async.new('sleep', '0.3').start(:$pty);
    my $typed = $pty.print('x' x 1_000_000);
    await $end;
    throws-like { await $typed }, X::Forkless, message => /'program has ended'/, 'its promise is broken';
}

subtest 'many at once' => {
    my @all = (^8).map: {
        start {
            my $pty = Forkless::Pty.new;
            my $text = '';
            $pty.Supply.tap({ $text ~= $_ });
            await Forkless::Proc::Async.new('seq', '2000').start(:$pty);
            $text.lines.elems
        }
    };
    is (await @all).unique, (2000,), 'each has its own';
}

is terminals(), 0, 'no descriptor is left';

done-testing;
