# What programs that are not trusted may do, prepared once for any number of launches.
use Forkless::Launch;
use Forkless::Native;

unit class Forkless::Sandbox;

# struct forkless_error
constant ERROR = 512;
# Those of forkless.h.
my %network = none => 0, host => 1, refused => 4;
constant CHANGE-ATTRIBUTES = 2;
constant STRICT = 8;
constant NO-INIT = 16;
# sizeof(forkless_sandbox_options), and where its lists are.
constant OPTIONS = 72;
constant LISTS = 16;
constant LINGER = 48;
constant LIMITS = 56;
constant HIDE = 64;
# Settings of the same names.
constant LIMIT-NAMES = <memory-max tasks-max cpu-max io-max cgroup-parent>;
# What every sandbox inherits, besides LC_*.
constant KEPT = <PATH HOME TERM COLORTERM NO_COLOR LANG LANGUAGE TZ>;

has Int $.handle;
has @!names;
# The variables of the process, which %*ENV is a copy of.
has %!inherited;

method new(Str:D :$mode = 'namespaces', :$read, :$write, :$project, :$hide, Str :$network, :$keep-env, Bool :$change-attributes, Real :$linger, Bool :$strict, Bool :$init = True, *%others) {
    my @unknown = %others.keys.grep(* !∈ LIMIT-NAMES).sort;
    die "no such option of a sandbox: @unknown.join(', ')" if @unknown;
    my @limits = %others.grep(*.value.defined).map({ |(.key.trans('-' => '_'), ~.value) });
    die "mode: expected 'namespaces' or 'landlock', not '$mode'" unless $mode eq 'namespaces' | 'landlock';
    my $landlock = $mode eq 'landlock';
    my $net = $network // ($landlock ?? 'refused' !! 'none');
    die "network: expected 'none', 'refused' or 'host', not '$net'" unless %network{$net}:exists;
    die "network: 'none' needs mode => 'namespaces'" if $landlock && $net eq 'none';
    die "change-attributes: for mode => 'landlock' alone" if $change-attributes && !$landlock;
    die "linger: seconds, for mode => 'namespaces' alone" if $linger.defined && ($landlock || $linger < 0);
    die "strict: for mode => 'namespaces' alone" if $strict && $landlock;
    die "init: for mode => 'namespaces' alone" if !$init && $landlock;
    # $*CWD need not be the directory of the process.
    my @paths = ($read, $write, $project).map({ .defined ?? .list.map(*.IO.absolute).list !! () });
    # A relative pattern is looked for below each of these.
    my @hidden = $hide.defined ?? $hide.list.map({ .IO.is-relative && .Str.contains(/<[*?]>/) ?? .Str !! .IO.absolute }) !! ();
    my @names = $keep-env.defined ?? $keep-env.list.map(~*) !! ();
    self.bless(:$landlock, :@names, lists => (@paths[0], @paths[1], @names, @paths[2], @limits, @hidden),
        linger => $linger.defined ?? ($linger * 1000).Int !! -1, flags => %network{$net} +| ($change-attributes ?? CHANGE-ATTRIBUTES !! 0) +| ($strict ?? STRICT !! 0) +| ($init ?? 0 !! NO-INIT))
}

submethod BUILD(:$landlock, :@!names, :@lists, :$flags, :$linger --> Nil) {
    my ($options, $place, $error) = buf8.allocate(OPTIONS), buf8.allocate(8), buf8.allocate(ERROR);
    $options.write-uint64(0, OPTIONS);
    $options.write-int32(8, $flags);
    $options.write-int64(LINGER, $linger);
    my @strings = @lists.map({ .map(&c-string).list });
    my @tables = @strings.map({ pointers($_) });
    # `linger` stands between them.
    $options.write-uint64($_ < 4 ?? LISTS + 8 * $_ !! (LIMITS, HIDE)[$_ - 4], address(@tables[$_])) for ^@tables;
    my $made = $landlock
        ?? forkless_sandbox_landlock($options, $place, $error)
        !! forkless_sandbox_namespaces($options, $place, $error);
    refuse($error) if $made < 0;
    $!handle = $place.read-uint64(0);
    # Without a procfs all is set, and nothing is taken for inherited.
    my $environ = try '/proc/self/environ'.IO.slurp(:enc<utf8-c8>);
    %!inherited = ($environ // '').split("\0").grep(*.contains('=')).map({ |.split('=', 2) });
}

# The handle has one owner.
method clone { self }

# Whether this machine can give it to this process, by trying. Throws what is refused.
method check(--> Bool:D) {
    my $error = buf8.allocate(ERROR);
    refuse($error) if forkless_sandbox_check($!handle, $error) < 0;
    True
}

# The sandbox that an argument means; False: none, for which it returns Any. A type object is an error, as it may be a forgotten `.new`, and so
# is what else is undefined: it may come from a `new` that has failed.
method of($what) {
    given $what {
        when Forkless::Sandbox:D { $_ }
        when Associative:D { Forkless::Sandbox.new(|%$_) }
        when Bool:D { $_ ?? Forkless::Sandbox.new !! Any }
        default { die "sandbox: expected a Forkless::Sandbox, its options, True or False, not {.raku}" }
    }
}

# Sets the sandbox of a command, and its environment: %env if that was given by the caller, else what is inherited of it by name.
method apply(Int $command, %env, Bool $is-given --> Nil) {
    die 'the sandbox cannot be set' if forkless_command_sandbox($command, $!handle) < 0;
    if $is-given {
        forkless_command_env_clear($command);
        forkless_command_env($command, c-string(.key), c-string(.value)) for %env;
        return;
    }
    # Only what differs: the library changes a HOME that is not visible inside, if it is inherited.
    forkless_command_env_remove($command, c-string($_)) for %!inherited.keys.grep({ %env{$_}:!exists });
    for %env.grep({ .key.starts-with('LC_') || .key eq any(|KEPT, |@!names) }) {
        my $is-same = %!inherited{.key}:exists && %!inherited{.key} eq .value;
        forkless_command_env($command, c-string(.key), c-string(.value)) unless $is-same;
    }
}

submethod DESTROY { forkless_sandbox_free($!handle) if $!handle }

=begin pod

=head1 NAME

Forkless::Sandbox - what a program that is not trusted may do

=head1 SYNOPSIS

    use Forkless::Capture;
    use Forkless::Sandbox;

    my $sandbox = Forkless::Sandbox.new(:write</srv/results>);    # once, for any number of launches
    $sandbox.check;
    say capture('analyse', :30timeout, :cwd</srv/results>, :$sandbox).out;

=head1 DESCRIPTION

A sandbox is prepared once and serves any number of launches. The program reads the programs and libraries of the system, and changes nothing
but what C<write> or C<project> names. By default it reaches no network and no other process. F<docs/sandbox.md> says more.

C<run>, C<shell>, C<capture> and C<start> take one as C<:$sandbox>. They also take its options, C<{ :write('/srv/results') }>, and C<True>.

=head1 METHODS

=item C<new>: prepares a sandbox. Throws C<X::Forkless> if a path cannot be opened or the kernel lacks what is needed, and dies at a wrong option.
=item C<check>: whether this machine can give it to this process, by trying. Throws C<X::Forkless> with what is refused.

=head1 OPTIONS

=item C<mode>: C<namespaces> (default), or C<landlock>, which hides nothing and works where user namespaces are refused.
=item C<read>, C<write>: one or more paths that the program may read, or also write to, with all below them.
=item C<project>: as C<write>, in namespaces, but what programs outside obey there, such as hooks of git, stays read-only.
=item C<hide>: in namespaces, paths and patterns below these that cannot be opened, such as C<**/.env>. They are looked up at each launch.
=item C<network>: C<none>, a loopback device alone (default in namespaces); C<refused>, no sockets (default with C<landlock>); C<host>, the
network of the caller, without Unix sockets.
=item C<keep-env>: names of variables that the program inherits besides C<PATH>, C<HOME>, C<TERM>, C<LANG> and the like.
=item C<change-attributes>: with C<landlock>, the program may change modes, owners and times of every file of its user.
=item C<linger>: in namespaces, how many seconds other processes have when the program has ended (default: 0.2).
=item C<strict>: in namespaces, requires Landlock of Linux 6.12, and refuses to execute what the program has written to F</tmp> and F</dev/shm>.
=item C<init>: in namespaces, C<False> makes the program itself PID 1 of the sandbox, which is faster, and loses what F<docs/sandbox.md> says.
=item C<memory-max>, C<tasks-max>, C<cpu-max>, C<io-max>, C<cgroup-parent>: limits of each launch with all that it starts.

=end pod
