# Settings of the child.
use Test;
use Forkless;
use Forkless::Proc;
use Forkless::Proc::Async;
use Forkless::Sandbox;
use Forkless::Settings;
use X::Forkless;

sub says($line, *%settings) { run('sh', '-c', $line, :out, :%settings).out.slurp(:close).trim }

is says('nice; umask', nice => 12, umask => 0o27), "12\n0027", 'numbers';
is says('grep NoNewPrivs /proc/self/status', :no-new-privs), "NoNewPrivs:\t1", 'a flag';
is says('grep NoNewPrivs /proc/self/status', no_new_privs => False), "NoNewPrivs:\t0", 'no flag, by the name of the other languages';
is says('cat /proc/self/timerslack_ns', timer-slack => 12345), '12345', 'a long number';
is shell('nice', :out, settings => { :9nice }).out.slurp(:close).trim, '9', 'of a line without a shell';
is run('sh', '-c', 'nice', :out, :cwd</>, settings => { :9nice }, sandbox => { :mode<landlock> }).out.slurp(:close).trim, '9', 'in a sandbox'
    if try { Forkless::Sandbox.new(:mode<landlock>).check; True };
{
    my $async = Forkless::Proc::Async.new('nice');
    my $text = '';
    $async.stdout.tap({ $text ~= $_ });
    await $async.start(settings => { :5nice });
    is $text.trim, '5', 'of start';
}
is says('ulimit -n; ulimit -c', rlimit => { nofile => (64, 64), core => (0, 0) }), "64\n0", 'two calls of a setting';
is says('ulimit -n', rlimit => ('nofile', 64, 64)), '64', 'one call';
is says('ulimit -n', rlimit => (('nofile', 64, 64),)), '64', 'a list of calls';
{
    my $file = $?FILE.IO.open;
    LEAVE $file.close;
    is says('head -n 1 <&7', fd => { 7 => $file }), '# Settings of the child.', 'another descriptor';
}
# Those above 31 are as the caller has them.
like says('grep SigIgn /proc/self/status', signal-ignore => (SIGINT, 1)), /<[08]> '0000003' $/, 'a setting of one value, twice';
is says('grep Cpus_allowed_list /proc/self/status', cpu-affinity => (0,)), "Cpus_allowed_list:\t0", 'an array';
is says('cut -d" " -f41 /proc/self/stat', scheduler => <batch 0>), '3', 'a word';
is says('test $(cut -d" " -f5 /proc/$$/stat) = $$ && echo leads', process-group => 0), 'leads', 'a process group';
is says('uname -n', unshare => <user uts>, hostname => 'inside', map-uid => (0, +$*USER, 1)), 'inside', 'namespaces'
    if try { says('true', unshare => 'user'); True };
for ^8 {
    # A hash has no order.
    my @settings = unshare => <user mount>, map-uid => (0, +$*USER, 1), tmpfs => ('/mnt', ''), bind-read-only => ('/etc', '/mnt'), read-only => '/';
    last unless try { says('true', unshare => 'user'); True };
    my $text = run('sh', '-c', 'test -e /mnt/passwd && echo etc', :out, settings => @settings).out.slurp(:close);
    is $text, "etc\n", 'a list of pairs is in its order' or last;
}
for (rlimit => ('nofilee', 1, 1)) => /'no such word'/, (rlimit => ('nofile', 1)) => /'takes 3 values'/, (nice => 1.5) => /whole/,
    (nice => 2**40) => /'out of range'/, (uid => -1) => /'out of range'/, (signal-ignore => 99) => /'library refuses'/ -> (:key($one), :value($why)) {
    throws-like { says('true', |%($one)) }, Exception, message => $why, $one.raku;
}
my $denied = Forkless::Proc.new(:out);
nok $denied.spawn('true', settings => { :99nice }), 'a value that is checked at the launch';
like $denied.os-error, /nice/, 'its error';
throws-like { says('true', memory-policy => 'nonsense') }, Exception, message => /'memory-policy cannot be "nonsense"'/, 'a wrong word';
throws-like { says('true', :nonsense) }, Exception, message => /nonsense/, 'an unknown setting';
throws-like { says('true', nice => 'high') }, Exception, message => /nice/, 'no number';
throws-like { Forkless::Proc::Async.new('true', settings => { :5nice }) }, Exception, message => /start/, 'an argument of start';

{
    my $tree = Forkless::Proc::Async.new('sh', '-c', '(setsid sleep 600 & echo $!); sleep 600; sleep 600');
    my $pid = Promise.new;
    $tree.stdout.lines.tap({ $pid.keep($_) });
    my $end = $tree.start(settings => { :kill-tree });
    await Promise.anyof($pid, $end);
    if $end.status ~~ Broken {
        like $end.cause.message, /Landlock/, 'kill-tree needs Landlock';
        note "SKIPPED: {$end.cause.message}";
    }
    else {
        my &runs = -> { my $file = "/proc/{$pid.result}/stat".IO; $file.e && $file.slurp !~~ /')' ' Z'/ };
        ok runs(), 'it runs';
        $tree.kill(SIGKILL);
        is (await $end).signal, 9, 'the end';
        nok runs(), 'kill-tree ends all that was started';
    }
}

done-testing;
