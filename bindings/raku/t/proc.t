use Test;
use Forkless;
use Forkless::Proc;

sub within(&code) {
    my $promise = start code();
    await Promise.anyof($promise, Promise.in(120));
    $promise.status ~~ Planned ?? die('not done within 120 seconds') !! $promise.result
}

subtest 'run' => {
    my $proc = run 'echo', 'hi', :out;
    isa-ok $proc, Proc;
    isa-ok $proc.out, IO::Pipe;
    is $proc.out.slurp(:close), "hi\n", 'output';
    is $proc.exitcode, 0, 'exit code';
    is $proc.signal, 0, 'signal';
    ok $proc.pid > 1, 'pid';
    is-deeply $proc.command, ('echo', 'hi'), 'command';
    ok $proc.so, 'True';
    nok run('false').so, 'False';
    is +run('sh', '-c', 'exit 4'), 4, 'as a number';
    is run('sh', '-c', 'kill -9 $$').signal, 9, 'death by a signal';
    throws-like { run 'false'; 0 }, X::Proc::Unsuccessful, message => / "'false'" .* 'exit code: 1' /;
    is-deeply run('printf', 'a\nb\n', :out).out.lines.List, ('a', 'b'), 'lines';
    is-deeply run('printf', 'a\nb', :out, :!chomp).out.lines.List, ("a\n", 'b'), ':!chomp';
    is-deeply run('printf', '\303\244', :out, :bin).out.slurp, buf8.new(0xc3, 0xa4), ':bin';
    is run('printf', '\344', :out, :enc<latin-1>).out.slurp, 'ä', ':enc';
    is run('printf', 'a;b', :out, :nl<;>).out.get, 'a', ':nl';
    is run('pwd', :cwd</>, :out).out.slurp, "/\n", ':cwd';
    is run('env', :env{ A => 'b' }, :out).out.slurp, "A=b\n", ':env';
}

subtest 'a program that does not exist' => {
    my $proc = run '/no/such/program', :out, :err;
    is $proc.out.slurp(:close), '', 'no output';
    # Later Rakudos have the errno there, and the reason in the exception.
    my $tells = CORE::<Proc>.^can('os-error');
    is $proc.exitcode, $tells ?? -1 !! 1, 'exit code';
    is $proc.signal, $tells ?? 254 !! 0, 'signal';
    throws-like { $proc.sink }, X::Proc::Unsuccessful, message => $tells ?? /'OS error'.*'/no/such/program'/ !! /'/no/such/program'/;
}

subtest 'both streams' => {
    my $proc = within { shell 'head -c 300000 /dev/zero >&2; echo out; head -c 300000 /dev/zero >&2', :out, :err };
    is within({ $proc.out.slurp(:close) }), "out\n", 'standard error does not block standard output';
    is within({ $proc.err.slurp(:close).chars }), 600_000, 'and is complete';
    is shell('echo a; echo b >&2; echo c', :merge, :out).out.slurp(:close), "a\nb\nc\n", ':merge';
    is within({ shell('head -c 300000 /dev/zero; exit 5', :out).exitcode }), 5, 'output that is not read';
    is within({ run('head', '-c', '300000', '/dev/zero', :!out, :!err).exitcode }), 0, ':!out';
}

subtest 'input' => {
    my $proc = run 'cat', :in, :out;
    within { $proc.in.say('x' x 300_000); $proc.in.close };
    is within({ $proc.out.slurp(:close).chars }), 300_001, 'more than two pipes hold';
    is run('cat', :!in, :out).out.slurp(:close), '', ':!in';
    my $first = run 'echo', 'abc', :out;
    my $second = run 'tr', 'a-z', 'A-Z', :in($first.out), :out;
    is $second.out.slurp(:close), "ABC\n", 'the output of another process';
    is $first.exitcode, 0, 'which ends';
    my $yes = run 'yes', :out;
    my $head = run 'head', '-n', '2', :in($yes.out), :out;
    is $head.out.slurp(:close), "y\ny\n", 'of a process without end';
    is within({ $yes.signal }), 13, 'which SIGPIPE ends';
}

subtest 'shell and qx' => {
    is shell('exit 3').exitcode, 3, 'shell';
    is-deeply shell('exit 3').command, ('exit 3',), 'command';
    is qx{echo one}, "one\n", 'qx';
    is qqx[echo {1 + 1}], "2\n", 'qqx';
    is QX('false'), '', 'a failure has no exception';
    isa-ok shell('true'), Forkless::Proc;
}

subtest 'threads of the pool' => {
    my @all = (^100).map: -> $n { start { run('sh', '-c', "sleep 0.01; exit $n").exitcode } };
    is-deeply within({ await @all }).List, (^100).List, 'each has its own status';
}

done-testing;
