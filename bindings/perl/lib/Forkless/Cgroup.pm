package Forkless::Cgroup;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Child;
use Forkless::Error;

our $VERSION = '0.1.0';

# The period of cpu.max, in microseconds.
use constant PERIOD => 100_000;

# Each limit: its file, and what is written.
my %LIMIT = (
    (map { my $file = $_; $file =~ tr/_/./; ($_ => [$file, sub { $_[0] }]) } qw(memory_max memory_high io_max cpu_weight)),
    memory_swap_max => ['memory.swap.max', sub { $_[0] }],
    tasks_max       => ['pids.max',        sub { $_[0] }],
    cpu_max         => ['cpu.max',         sub { int($_[0] * PERIOD) . ' ' . PERIOD }],
    io_weight       => ['io.weight',       sub { "default $_[0]" }],
);

sub new {
    my ($class, %how) = @_;
    my ($parent, $raise) = delete @how{qw(parent raise)};
    my @limits;
    for my $name (sort keys %how) {
        my ($file, $write) = @{ $LIMIT{$name} // Forkless::_croak("no such option: $name") };
        next if !defined $how{$name};
        Forkless::_croak("cpu_max: expected a number of CPUs, not '$how{$name}'") if $name eq 'cpu_max' && $how{$name} !~ /\A[0-9]+(?:\.[0-9]+)?\z/;
        push @limits, $file, $write->($how{$name});
    }
    my $self = $class->_new($parent, \@limits) or return Forkless::Error::give({ raise => $raise });
    $self->{raise} = $raise;
    return $self;
}

sub path { return $_[0]->_text('') }

sub get {
    my ($self, $file) = @_;
    return $self->_text($file) // Forkless::Error::give($self);
}

sub set {
    my ($self, $file, $value) = @_;
    return $self->_write($file, $value) ? $self : Forkless::Error::give($self);
}

sub counter {
    my ($self, $file, $name) = @_;
    return $self->_counter($file, $name) // Forkless::Error::give($self);
}

sub oom_kills { return $_[0]->counter('memory.events', 'oom_kill') }

sub signal {
    my ($self, $signal) = @_;
    return $self->_signal(Forkless::Child::signal_number($signal)) ? $self : Forkless::Error::give($self);
}

sub kill { return $_[0]->signal('KILL') }

sub wait_empty {
    my ($self, $timeout) = @_;
    return $self->_wait_empty($timeout) // Forkless::Error::give($self);
}

sub terminate {
    my ($self, $grace, $signal) = @_;
    $self->signal($signal // 'TERM') or return;
    my $has_ended = $self->wait_empty($grace) // return;
    return 1 if $has_ended;
    $self->kill or return;
    $self->wait_empty // return;
    return 0;
}

sub end {
    my ($self) = @_;
    return $self->_end ? 1 : Forkless::Error::give($self);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Cgroup - limits of all processes of a program together

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Cgroup;

    my $group = Forkless::Cgroup->new(memory_max => '512M', tasks_max => 100, cpu_max => 1.5) or die "$Forkless::error\n";
    Forkless->new(cmd => ['make'], cgroup => $group)->status;
    warn "out of memory\n" if $group->oom_kills;
    $group->end;

=head1 DESCRIPTION

A new cgroup of version 2, see L<cgroups(7)>. A program in it, and what it starts, cannot leave it without privileges.

A limit needs its controller, which the parent hands down. Only the root cgroup can do that while it has processes itself. The error says what
is missing.

=head1 METHODS

Those that fail return undef and set C<$Forkless::error>.

=head2 new

    my $group = Forkless::Cgroup->new(%options);

C<parent>: the directory of the cgroup to create it in (default: that of this process). C<memory_max>, C<memory_high>, C<memory_swap_max>: bytes, or
a text such as C<512M>. C<tasks_max>: processes and threads. C<cpu_max>: CPUs, such as 1.5. C<cpu_weight>, C<io_weight>: from 1 to 10000. C<io_max>: as in
that file. C<raise>: as for commands.

=head2 path, fileno

Its directory, and a descriptor of that.

=head2 get, set, counter, oom_kills

    my $bytes = $group->get('memory.current');
    $group->set('memory.max', 1 << 30);
    my $hits = $group->counter('pids.events', 'max');

C<oom_kills>: how many of its processes the kernel has killed for want of memory.

=head2 signal, kill, terminate

    $group->signal('TERM');
    $group->terminate(5);

They reach all its processes; none can escape by forking. C<terminate(GRACE, SIGNAL)> kills those that are left after so many seconds. True if none
was left.

=head2 wait_empty

Waits until it has no processes, for so many seconds at most. Returns whether it has none.

=head2 end

Kills all processes that are left, and removes it. An object that is forgotten removes it only if it is empty.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
