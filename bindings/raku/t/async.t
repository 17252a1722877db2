use Test;
use Forkless::Proc::Async;
use X::Forkless;

constant Ours = Forkless::Proc::Async;

# The guard of a test that waits for a promise. No test passes because of it.
sub within($promise) {
    await Promise.anyof($promise, Promise.in(120));
    $promise.status ~~ Planned ?? die('not done within 120 seconds') !! $promise.result
}

subtest 'attributes' => {
    my $proc = Ours.new('echo', 'a', 'b', :w, :enc<latin-1>, :arg0<other>);
    isa-ok $proc, Proc::Async;
    is-deeply $proc.command, ('echo', 'a', 'b'), 'command';
    is $proc.path, 'echo', 'path';
    is-deeply $proc.args.List, ('other', 'a', 'b'), 'args';
    ok $proc.w, 'w';
    nok $proc.started, 'not started';
    is $proc.enc, 'latin-1', 'enc';
}

subtest 'streams and status' => {
    my $proc = Ours.new('sh', '-c', 'echo out; echo err >&2; exit 3');
    my ($out, $err) = '', buf8.new;
    $proc.stdout.tap({ $out ~= $_ });
    $proc.stderr(:bin).tap({ $err.append($_) });
    my $end = $proc.start;
    ok $proc.started, 'started';
    my $status = within($end);
    isa-ok $status, Proc;
    is $status.exitcode, 3, 'exit code';
    is $status.signal, 0, 'no signal';
    is-deeply $status.command, ('sh', '-c', 'echo out; echo err >&2; exit 3'), 'command';
    is $out, "out\n", 'stdout';
    is-deeply $err, buf8.new("err\n".encode), 'stderr, as bytes';
    ok within($proc.pid) > 1, 'pid';
    is within($proc.ready), within($proc.pid), 'ready';
    throws-like { $status.sink }, X::Proc::Unsuccessful, message => / 'exit code: 3' /;
}

subtest 'one supply for both streams' => {
    my $proc = Ours.new('sh', '-c', 'echo one; echo two >&2; echo three');
    my $all = '';
    $proc.Supply.tap({ $all ~= $_ });
    within($proc.start);
    is $all, "one\ntwo\nthree\n", 'in the order of the writes';
}

subtest 'a large output stays in order, and is complete when the promise is kept' => {
    my $proc = Ours.new('seq', '1', '200000');
    my @parts;
    my $done = False;
    $proc.stdout.tap({ @parts.push($_) }, done => { $done = True });
    within($proc.start);
    ok $done, 'done';
    is @parts.join.lines.elems, 200_000, 'all lines';
    ok @parts.join eq (1..200_000).map({ "$_\n" }).join, 'in order';
}

subtest 'characters that are split between two reads' => {
    my $proc = Ours.new('sh', '-c', q{printf 'a\303'; read x; printf '\244b\r\n'}, :w);
    my $text = '';
    my $begun = Promise.new;
    $proc.stdout.tap({ $text ~= $_; $begun.keep if $begun.status ~~ Planned });
    my $end = $proc.start;
    within($proc.ready);
    within($proc.say('go'));
    $proc.close-stdin;
    within($end);
    is $text, "aäb\n", 'one character, one newline';
}

subtest 'standard input' => {
    my $proc = Ours.new('cat', :w);
    my $text = '';
    $proc.stdout.tap({ $text ~= $_ });
    my $end = $proc.start;
    is within($proc.print('ä')), 2, 'print: number of bytes';
    is within($proc.say(<a b>)), 6, 'say';
    is within($proc.put(<a b>)), 3, 'put';
    is within($proc.write(buf8.new(10))), 1, 'write';
    # More than a pipe takes at once.
    my @writes = (^20).map: { $proc.print(~$_ x 50_000) };
    for @writes.kv -> $n, $promise { within($promise) == 50_000 * $n.chars or flunk("write $n") }
    ok $proc.close-stdin, 'close-stdin';
    within($end);
    is $text, "ä(a b)\nab\n\n" ~ (^20).map({ ~$_ x 50_000 }).join, 'all of it, in order';
    dies-ok { within($proc.print('late')) }, 'after the end it is broken';
}

subtest 'elements of more than a byte' => {
    my $proc = Ours.new('cat', :w, :enc<utf16le>);
    my $bytes = buf8.new;
    $proc.stdout(:bin).tap({ $bytes.append($_) });
    my $end = $proc.start;
    is within($proc.print('aÄ')), 4, 'print: number of bytes';
    is within($proc.write(Blob[int32].new(-1))), 4, 'write';
    $proc.close-stdin;
    within($end);
    is-deeply $bytes, buf8.new(0x61, 0, 0xc4, 0, 0xff xx 4), 'all of it';
}

subtest 'data that nothing reads' => {
    my $proc = Ours.new('sh', '-c', 'exec <&-; echo closed; exec sleep 1000', :w);
    my $closed = Promise.new;
    $proc.stdout.tap({ $closed.keep if .contains('closed') && $closed.status ~~ Planned });
    my $end = $proc.start;
    within($closed);
    throws-like { within($proc.print('x')) }, X::Forkless, errno => 32;
    $proc.kill(SIGKILL);
    is within($end).signal, 9, 'killed';
}

subtest 'kill' => {
    for SIGTERM => 15, 15 => 15, 'TERM' => 15, 'SIGINT' => 2 -> (:key($signal), :value($number)) {
        my $proc = Ours.new('sleep', '1000');
        my $end = $proc.start;
        within($proc.ready);
        $proc.kill($signal);
        is within($end).signal, $number, $signal.raku;
        lives-ok { $proc.kill($signal) }, 'after the end';
    }
}

subtest 'a process that cannot be started' => {
    my $proc = Ours.new('/no/such/program');
    my $end = $proc.start;
    throws-like { within($end) }, X::OS, message => / '/no/such/program' .* 'No such file' /;
    throws-like { within($proc.ready) }, X::Forkless, errno => 2;
    throws-like { within(Ours.new('true').start(cwd => '/no/such/directory')) }, X::Forkless, errno => 2;
    throws-like { within(Ours.new('echo', "a\0b").start) }, X::Forkless, errno => 22, message => / NUL /;
    throws-like { within(Ours.new('true').start(ENV => { A => "a\0b" })) }, X::Forkless, errno => 22;
    # Not taken for the environment of the launch before, in either order of its variables.
    within(Ours.new('true').start(ENV => { A => 'a', B => 'b' }));
    for { A => "a\0B\0b" }, { B => "b\0A\0a" } -> %env {
        throws-like { within(Ours.new('true').start(ENV => %env)) }, X::Forkless, errno => 22;
    }
}

subtest 'exceptions of wrong use' => {
    my $proc = Ours.new('true');
    throws-like { $proc.say('x') }, X::Proc::Async::OpenForWriting;
    throws-like { $proc.kill }, X::Proc::Async::MustBeStarted;
    throws-like { Ours.new('true', :w).print('x') }, X::Proc::Async::MustBeStarted;
    throws-like { my $two = Ours.new('true'); $two.stdout; $two.stdout(:bin) }, X::Proc::Async::CharsOrBytes;
    throws-like { my $two = Ours.new('true'); $two.stdout; $two.Supply }, X::Proc::Async::SupplyOrStd;
    throws-like { my $two = Ours.new('true'); $two.Supply; $two.stderr }, X::Proc::Async::SupplyOrStd;
    throws-like { my $two = Ours.new('true', :w); $two.bind-stdin($*IN) }, X::Proc::Async::BindOrUse;
    throws-like { my $two = Ours.new('true'); $two.bind-stdout($*OUT); $two.stdout }, X::Proc::Async::BindOrUse;
    within($proc.start);
    throws-like { $proc.start }, X::Proc::Async::AlreadyStarted;
    throws-like { $proc.stdout }, X::Proc::Async::TapBeforeSpawn;
}

subtest 'binding' => {
    my ($a, $b) = Ours.new('echo', 'piped'), Ours.new('tr', 'a-z', 'A-Z');
    my $text = '';
    $b.bind-stdin($a.stdout);
    $b.stdout.tap({ $text ~= $_ });
    my @ends = $b.start, $a.start;
    within($_) for @ends;
    is $text, "PIPED\n", 'the output of another process, whichever is started first';

    my ($yes, $head) = Ours.new('yes'), Ours.new('head', '-n', '1');
    $head.bind-stdin($yes.stdout);
    $head.stdout.tap;
    @ends = $yes.start, $head.start;
    is within(@ends[0]).signal, 13, 'SIGPIPE ends a process whose output nothing reads';

    my $file = $*TMPDIR.add("forkless-raku-{$*PID}");
    LEAVE $file.unlink;
    given $file.open(:w) {
        my $proc = Ours.new('sh', '-c', 'echo out; echo err >&2');
        $proc.bind-stdout($_);
        $proc.bind-stderr($_);
        within($proc.start);
        .close;
    }
    is $file.slurp, "out\nerr\n", 'a file as output';
    my $cat = Ours.new('cat');
    my $handle = $file.open;
    $cat.bind-stdin($handle);
    $text = '';
    $cat.stdout.tap({ $text ~= $_ });
    within($cat.start);
    $handle.close;
    is $text, "out\nerr\n", 'a file as input';
}

subtest 'environment, working directory, argv[0]' => {
    sub output($proc, |how) {
        my $text = '';
        $proc.stdout.tap({ $text ~= $_ });
        within($proc.start(|how));
        $text
    }
    is output(Ours.new('env'), ENV => { A => 'b' }), "A=b\n", 'ENV';
    {
        temp %*ENV = A => '1', PATH => %*ENV<PATH>;
        is output(Ours.new('sh', '-c', 'echo $A')), "1\n", '%*ENV';
        %*ENV<A> = '2';
        is output(Ours.new('sh', '-c', 'echo $A')), "2\n", 'a change of %*ENV';
    }
    is output(Ours.new('pwd'), cwd => '/'), "/\n", 'cwd';
    is output(Ours.new('sh', '-c', 'echo $0', :arg0<other>)), "other\n", 'arg0 is not the program';
    my $odd = buf8.new(0x61, 0xff, 0x62).decode('utf8-c8');
    my $proc = Ours.new('printf', '%s', $odd);
    my $bytes = buf8.new;
    $proc.stdout(:bin).tap({ $bytes.append($_) });
    within($proc.start);
    is-deeply $bytes, buf8.new(0x61, 0xff, 0x62), 'an argument that is not UTF-8';
    my $signals = output(Ours.new('cat', '/proc/self/status')).lines.grep(/ ^ Sig [Blk | Ign] /);
    is $signals.map({ :16(.words[1]) +& 0x7fffffff }).sum, 0, 'no signal is ignored or blocked';
}

# Each way to wait for a child, or for its output, ends with the error: a tap, a list, a channel, a promise, a descriptor, a write.
subtest 'a program that cannot be started leaves nothing open' => {
    sub ended(Str $what, &waits) {
        my $name;
        within(start { try waits(); $name = $!.^name });
        like $name, / ^ 'X::Forkless' /, $what;
    }
    my @kinds = text => { .stdout }, bytes => { .stdout(:bin) }, 'standard error' => { .stderr }, merged => { .Supply };
    for @kinds -> (:key($kind), :value(&stream)) {
        my $proc = Ours.new('does-not-exist', :w);
        my $supply = stream($proc);
        my $before = Promise.new;
        $supply.tap({;}, quit => { $before.break($_) }, done => { $before.keep('done') });
        ended "$kind: start", { await $proc.start };
        ended "$kind: a tap from before", { await $before };
        for ^2 {
            my $after = Promise.new;
            $supply.tap({;}, quit => { $after.break($_) }, done => { $after.keep('done') });
            ended "$kind: tap $_", { await $after };
        }
        ended "$kind: list", { $supply.list.elems };
        ended "$kind: channel", { $supply.Channel.receive };
        ended "$kind: promise", { await $supply.Promise };
        ended "$kind: descriptor", { await $supply.native-descriptor };
        ended "$kind: ready", { await $proc.ready };
        ended "$kind: write", { await $proc.write(Blob.new(1)) };
    }
    my ($first, $second) = Ours.new('does-not-exist'), Ours.new('cat');
    my $output = $second.stdout;
    $second.bind-stdin($first.stdout);
    my $end = $second.start;
    ended 'bound: the first', { await $first.start };
    ended 'bound: the second', { await $end };
    ended 'bound: its output', { $output.list.elems };
    ended 'bound: its pid', { await $second.ready };
}

done-testing;
