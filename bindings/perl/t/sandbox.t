use v5.16;
use warnings;
use Errno qw(ENOENT);
use File::Temp qw(tempdir);
use Test::More;

use Forkless;
use Forkless::Sandbox;

# Why a mode does not work here.
sub lacks {
    my ($mode) = @_;
    my $sandbox = Forkless::Sandbox->new(mode => $mode);
    return if $sandbox && $sandbox->check;
    return "SKIPPED: sandboxes by $mode, because $Forkless::error";
}

my $place = tempdir(CLEANUP => 1);
chmod 0755, $place;
my ($inside, $outside) = map { "$place/$_" } qw(inside outside);
for my $directory ($inside, $outside) {
    mkdir $directory or die "mkdir: $!";
    chmod 0777, $directory;
}
$ENV{FORKLESS_KEPT}   = 'kept';
$ENV{FORKLESS_SECRET} = 'secret';

sub output_of {
    my ($line, $sandbox) = @_;
    my $command = Forkless->new(cmd => ['sh', '-c', $line], cwd => '/', sandbox => $sandbox) or die "$Forkless::error\n";
    return ($command->capture // die "$Forkless::error\n")->stdout;
}

for my $mode (qw(namespaces landlock)) {
    if (my $why = lacks($mode)) {
        print "$why\n";
        next;
    }
    my $line = "echo 1 > $inside/a && cat $inside/a; (echo 2 > $outside/b || echo refused) 2> /dev/null";
    for my $write ($inside, [$inside]) {
        is(output_of($line, { mode => $mode, write => $write }), "1\nrefused\n", 'it writes only where it may');
    }
    my $sandbox = Forkless::Sandbox->new(mode => $mode, read => $inside, keep_env => ['FORKLESS_KEPT']);
    is(output_of("cat $inside/a; echo \$FORKLESS_KEPT\$FORKLESS_SECRET", $sandbox), "1\nkept\n", 'it reads, and inherits variables by name');
    my $set = Forkless->new(cmd => ['sh', '-c', 'grep Seccomp:.2 /proc/self/status'], cwd => '/', stdout => 'null')->sandbox($sandbox);
    is($set->status, 0, 'as a method');
    is($set->prepare->status, 0, 'prepared');
    my $spawned = $set->spawn;
    is($spawned->wait, 0, 'spawned');

    ok(!Forkless::Sandbox->new(mode => $mode, write => "$place/none"), 'a missing path');
    is($Forkless::error->errno, ENOENT, '… is an error');
    like($Forkless::error, qr/none/, '… that names it');
    ok(!eval { Forkless::Sandbox->new(mode => $mode, write => "$place/none", raise => 1); 1 }, '… or is thrown');

    my $refused = Forkless->new(cmd => ['true'], cwd => '/', sandbox => $sandbox, inherit_all => 1);
    is($refused->status, -1, 'inherit_all');
    like($Forkless::error, qr/inherit_all/, '… is refused');
    next if $mode eq 'landlock';
    mkdir "$inside/$_" for qw(.git .git/hooks);
    chmod 0777, "$inside/.git", "$inside/.git/hooks";
    $line = "(cd $inside; echo > .git/hooks/a || mv .git x || echo > .git/b && echo written) 2> /dev/null";
    is(output_of($line, { project => $inside }), "written\n", 'what is obeyed outside stays read-only in a project');
    open my $env, '>', "$inside/.git/.env" or die $!;
    close $env;
    $line = "cat $inside/.git/.env 2>&1 | sed 's/.*: //'";
    is(output_of($line, { project => $inside, hide => '**/.env' }), "Permission denied\n", 'what is hidden cannot be opened');

    $line = '(sleep 0.05; echo late) & echo done';
    is(output_of($line, {}), "done\nlate\n", 'other processes have a while to end');
    is(output_of($line, { linger => 0 }), "done\n", '… or none');

    is(output_of('echo $$ /proc/[0-9]*; (setsid sleep 600 &) &', { init => 0 }), "1 /proc/1\n", 'without an init the program is PID 1');
    ok(!defined Forkless::Sandbox->new(init => 0, linger => 1), '… and nothing lingers');
    like($Forkless::error, qr/linger.*init/, '… which the error says');

    SKIP: {
        my $strict = Forkless::Sandbox->new(strict => 1) or skip "$Forkless::error", 1;
        $line = 'cp /bin/true /tmp/true && /tmp/true 2>/dev/null || echo $?';
        is(output_of($line, $strict), "126\n", 'strict executes nothing that the program has written');
    }

    my $ends = Forkless->new(cmd => ['sh', '-c', 'test $PPID = 1 && kill -TERM $$'], cwd => '/', sandbox => {});
    is($ends->status & 127, 15, 'a signal is a signal');
    is($ends->spawn->wait & 127, 15, '… of a child, too');
    ok(!defined Forkless->new(cmd => ['no-such-program'], cwd => '/', sandbox => {})->spawn, 'no such program');
    is($Forkless::error->errno, ENOENT, '… is an error');
}
for my $wrong ([mode => 'x'], [mode => 'landlock', bind => '.'], [mode => 'landlock', linger => 1], [mode => 'landlock', strict => 1], [mode => 'landlock', init => 0], [mode => 'landlock', network => 'none'], [network => 'x'], [change_attributes => 1]) {
    ok(!eval { Forkless::Sandbox->new(@$wrong); 1 }, "refused: @$wrong");
}
ok(!eval { Forkless->new(cmd => ['true'], sandbox => 1); 1 }, 'no sandbox');
for my $setting (qw(sandbox pty)) {
    ok(!eval { Forkless->new(cmd => ['true'], $setting => undef); 1 } && $@ =~ /$setting: undefined.* at \Q$0\E/, "a $setting that could not be made");
    is(Forkless->new(cmd => ['true'], $setting => 0)->status, 0, "no $setting");
}
my $command = Forkless->new(cmd => ['true']);
ok(!defined $command->rlimit(77, 1, 1), 'a setting that is refused');
is($command->status, -1, '… is not left out');
like($Forkless::error, qr/an earlier setter failed: no such resource/, '… which the error says');
done_testing;
