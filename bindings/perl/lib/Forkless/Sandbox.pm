package Forkless::Sandbox;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Error;

our $VERSION = '0.1.0';

# Those of forkless.h.
my %NETWORK = (none => 0, host => 1, refused => 4);
use constant { CHANGE_ATTRIBUTES => 2, STRICT => 8, NO_INIT => 16 };

my @LIMITS = qw(memory_max tasks_max cpu_max io_max cgroup_parent);
my %OPTION = map { $_ => 1 } @LIMITS, qw(mode read write project hide network keep_env change_attributes linger strict init raise);

sub new {
    my ($class, %how) = @_;
    for my $name (sort keys %how) {
        Forkless::_croak("no such option: $name") if !$OPTION{$name};
    }
    my $mode = $how{mode} // 'namespaces';
    Forkless::_croak("mode: expected 'namespaces' or 'landlock', not '$mode'") if $mode !~ /\A(?:namespaces|landlock)\z/;
    my $network = $how{network} // ($mode eq 'landlock' ? 'refused' : 'none');
    my $flags   = $NETWORK{$network} // Forkless::_croak("network: expected 'none', 'refused' or 'host', not '$network'");
    Forkless::_croak("network: 'none' needs mode => 'namespaces'") if $network eq 'none' && $mode eq 'landlock';
    Forkless::_croak("change_attributes: for mode => 'landlock' alone") if $how{change_attributes} && $mode ne 'landlock';
    Forkless::_croak("linger: for mode => 'namespaces' alone") if defined $how{linger} && $mode ne 'namespaces';
    Forkless::_croak("strict: for mode => 'namespaces' alone") if $how{strict} && $mode ne 'namespaces';
    my $no_init = defined $how{init} && !$how{init};
    Forkless::_croak("init: for mode => 'namespaces' alone") if $no_init && $mode ne 'namespaces';
    $flags |= NO_INIT           if $no_init;
    $flags |= STRICT            if $how{strict};
    $flags |= CHANGE_ATTRIBUTES if $how{change_attributes};
    for my $name (grep { ref $how{$_} && ref $how{$_} ne 'ARRAY' } qw(read write keep_env project hide)) {
        Forkless::_croak("$name: expected a text or a reference to an array") if !overload::Method($how{$name}, '""');
    }
    my @lists = map { ref eq 'ARRAY' ? $_ : defined ? [$_] : [] } @how{qw(read write keep_env project hide)};
    my @limits = map { defined $how{$_} ? ($_ => $how{$_}) : () } @LIMITS;
    my $self   = $class->_prepare($mode eq 'landlock', @lists, \@limits, $flags, $how{linger}) or return Forkless::Error::give(\%how);
    $self->{raise} = $how{raise};
    return $self;
}

sub check {
    my ($self) = @_;
    return $self->_check ? 1 : Forkless::Error::give($self);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Sandbox - what a program may do that is not trusted

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Sandbox;

    my $sandbox = Forkless::Sandbox->new(write => '/srv/results') or die "$Forkless::error\n";
    my $output  = Forkless->new(cmd => ['analyse'], cwd => '/srv/results', sandbox => $sandbox)->capture(timeout => 30);

=head1 DESCRIPTION

A sandbox is prepared once and serves any number of commands. The program reads the programs and libraries of the system, and changes nothing
but what C<write> names. It reaches no network, no Unix socket and no other process, has no capabilities, and inherits few variables.
F<docs/sandbox.md> of the sources says more.

=head1 METHODS

=head2 new

    my $sandbox = Forkless::Sandbox->new(%options);

Returns undef and sets C<$Forkless::error> if a path cannot be opened, if the kernel has no Landlock of Linux 6.2 (for C<landlock>), or if no
program may be in memory (for C<namespaces>; see C<vm.memfd_noexec>). Where user namespaces are refused, the launch fails.
Check the result, or pass it on as it is: an undefined C<sandbox> of a command is an error. Options:

=over

=item mode

C<namespaces> (default): the program sees nothing else, and has an init, whose PID is that of the child. Or C<landlock>: Landlock and a filter
of system calls alone, which hide nothing, and work where user namespaces are refused.

=item read, write

A path, or a reference to an array of paths: files and directories that the program may read, or also write to, with all below them.

=item project

As C<write>, in namespaces, but what programs outside obey there, such as hooks of git, stays read-only.

=item hide

In namespaces, paths and patterns below these that cannot be opened: C<'**/.env'>. They are looked up at each launch, or by C<prepare>.

=item network

C<none>: a loopback device alone, the default with namespaces. C<refused>: no sockets, the default with Landlock. C<host>: the network of the
caller, without Unix sockets.

=item keep_env

Names of variables that the program inherits beside C<PATH>, C<HOME>, C<TERM>, C<LANG> and the like.

=item change_attributes

With C<landlock>, whether the program may change modes, owners and times. It may then do so for every file of its user.

=item linger

In namespaces, how many seconds other processes have when the program has ended. Default: 0.2.

=item strict

In namespaces, whether Landlock of Linux 6.12 is required, and what the program writes to F</tmp> and F</dev/shm> cannot be executed.

=item init

In namespaces, a false value makes the program itself PID 1 of the sandbox, which is faster, and loses what F<docs/sandbox.md> says. Default: 1.

=item memory_max, tasks_max, cpu_max, io_max, cgroup_parent

Limits of each launch with all that it starts, as the settings of these names in L<Forkless::Command>.

=item raise

As for commands.

=back

=head2 check

Whether this machine can give the sandbox to this process, by trying. Else it returns undef, and C<$Forkless::error> says what is refused.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
