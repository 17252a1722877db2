package Forkless::Child;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Error;

our $VERSION = '0.1.0';

sub _pass_on {
    my ($self, $raise) = @_;
    $self->{raise} = $raise;
    $self->{pid}   = $self->_pid;
    return $self;
}

sub pid    { return $_[0]{pid} }
sub status { return $_[0]{status} }

sub _stream {
    my ($self, $number, $mode) = @_;
    return $self->{stream}{$number} if $self->{stream}{$number};
    my $fd = $self->_take_fd($number) // return Forkless::Error::give($self);
    # No warning if the caller's STDIN or STDOUT is closed and this handle gets its number.
    no warnings 'io';
    open my $handle, $mode, $fd or return;
    if ($mode ne '<&=') {
        my $old = select $handle;
        $| = 1;
        select $old;
    }
    return $self->{stream}{$number} = $handle;
}

sub stdin  { return $_[0]->_stream(0, '>&=') }
sub stdout { return $_[0]->_stream(1, '<&=') }
sub stderr { return $_[0]->_stream(2, '<&=') }

# The parent's socket of a pair.
sub socket { return $_[0]->_stream($_[1], '+<&=') }

# Readable when the program has ended, for event loops.
sub pidfd {
    my ($self) = @_;
    return $self->{pidfd} if $self->{pidfd};
    my $fd = $self->_pidfd // return Forkless::Error::give($self);
    no warnings 'io';
    open my $handle, '<&', $fd or return;
    return $self->{pidfd} = $handle;
}

# A handle of the next descriptor that the child has handed back.
sub handed_back {
    my ($self) = @_;
    my $fd = $self->_take_handed_back // return Forkless::Error::give($self);
    no warnings 'io';
    open my $handle, '+<&=', $fd or return;
    return $handle;
}

# Otherwise wait would block for ever on a program that reads its standard input until end of file.
sub _close_stdin {
    my ($self) = @_;
    my $stdin = delete $self->{stream}{0};
    return close $stdin if $stdin;
    local ($!, $Forkless::error) = ($!, $Forkless::error);
    my $fd = $self->_take_fd(0) // return;
    no warnings 'io';
    open my $handle, '>&=', $fd or return;
    return close $handle;
}

# Returns the status, as $?; undef and ETIMEDOUT at the timeout.
sub wait {
    my ($self, $timeout) = @_;
    if (defined $self->{status}) {
        $? = $self->{status};
        return $?;
    }
    $self->_close_stdin if !defined $timeout;
    return $self->_ended($self->_wait($timeout));
}

sub _ended {
    my ($self, @answer) = @_;
    return if !@answer;
    if (!defined $answer[0]) {
        # As waitpid: otherwise $? would be that of an earlier program.
        $? = -1;
        return Forkless::Error::give($self);
    }
    $? = $self->{status} = $answer[0];
    return $?;
}

# Also returns when the child is stopped (0x7f in the lower byte) or continued (0xffff), as waitpid(2) does.
sub wait_change {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait_change($timeout);
    return $self->_ended(@answer) if !@answer || !defined $answer[0];
    my $is_end = ($answer[0] & 0xff) != 0x7f && $answer[0] != 0xffff;
    return $is_end ? $self->_ended(@answer) : $answer[0];
}

sub wait_exec {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait_exec($timeout);
    return if !@answer;
    return $answer[0] // Forkless::Error::give($self);
}

sub signal {
    my ($self, $signal) = @_;
    return defined $self->_signal(signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

sub signal_group {
    my ($self, $signal) = @_;
    return defined $self->_signal_group(signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

sub kill { return $_[0]->signal($_[1] // 'KILL') }

sub kill_on_free {
    my ($self, $on) = @_;
    return defined $self->_kill_on_free($on // 1) ? $self : Forkless::Error::give($self);
}

sub terminate {
    my ($self, $signal, $grace) = @_;
    return $self->_ended($self->_terminate(signal_number($signal // 'TERM'), $grace // 5));
}

sub terminate_group {
    my ($self, $signal, $grace) = @_;
    return $self->_ended($self->_terminate_group(signal_number($signal // 'TERM'), $grace // 5));
}

sub usage { return $_[0]->_usage // Forkless::Error::give($_[0]) }
sub route { return $_[0]->_route // Forkless::Error::give($_[0]) }

# Release the child and return its pid, for waitpid.
sub release { return $_[0]->_release // Forkless::Error::give($_[0]) }

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Child - a child process: streams, waiting, signals

=head1 SYNOPSIS

    use Forkless;

    my $child = Forkless->new(cmd => ['sort'], stdin => 'pipe', stdout => 'pipe')->spawn or die "$Forkless::error\n";
    print { $child->stdin } "b\na\n";
    close $child->stdin;
    print readline $child->stdout;
    defined $child->wait(10) or $child->terminate;

=head1 DESCRIPTION

C<spawn> and C<launch> of L<Forkless::Command> return objects of this class. When the object is destroyed, the child continues, unless
C<kill_on_free> was set; it never becomes a permanent zombie. Signal handlers run while these methods wait, and may die; with
C<terminate> and C<terminate_group> they run afterwards.

A method that fails returns undef and sets C<$!> and C<$Forkless::error>, or throws the error if the command has C<raise>: L<Forkless::Error>.

=head1 METHODS

=head2 pid

The process ID.

=head2 stdin, stdout, stderr

The parent's ends of the child's pipes, as handles.

=head2 socket

    my $handle = $child->socket(6);

The parent's socket of a pair whose other socket is this descriptor of the child.

=head2 wait

    $child->wait;
    defined $child->wait(2.5) or die "not ended: $!";

Waits for the child to end and returns its status, as C<$?>, which is set too (to -1 if waiting fails). Returns undef with ETIMEDOUT if the
child has not ended after this many seconds. Without a timeout its standard input is closed first.

=head2 status

The status, once the child has been waited for; undef before.

=head2 wait_change

    my $status = $child->wait_change($seconds);

As C<wait>, but also returns when the child is stopped or continued. The status is that of waitpid(2).

=head2 wait_exec

    $child->wait_exec($seconds);

Waits until the program has been executed, after C<launch>.

=head2 signal, signal_group

    $child->signal('HUP');

Sends a signal, by name or number, to the child or to the process group that it leads.

=head2 kill

    $child->kill;
    $child->kill('INT');

As C<signal>, with SIGKILL as default.

=head2 terminate, terminate_group

    my $status = $child->terminate('TERM', 5);

Sends the signal (default: SIGTERM) and waits; if the child has not ended after this many seconds (default: 5), sends SIGKILL. Returns the status.

=head2 kill_on_free

    $child->kill_on_free(1);

With a true value the child is killed when the object is dropped.

=head2 pidfd

A handle that is readable when the child has ended, for event loops. No SIGCHLD handler is needed.

    my $watch = AnyEvent->io(fh => $child->pidfd, poll => 'r', cb => sub { $child->wait(0) });
    $loop->watch_io(handle => $child->pidfd, on_read_ready => sub { $child->wait(0) });
    Mojo::IOLoop->singleton->reactor->io($child->pidfd => sub { $child->wait(0) });

These are for AnyEvent, IO::Async and Mojolicious. F<eg/anyevent.pl> is a whole program.

=head2 handed_back

A handle of the next descriptor that the child has handed back (setting C<hand_back>).

=head2 usage

A hash of the resources that the child used, once it has been waited for: C<wall>, C<user> and C<system> in seconds, C<max_rss_kib>, C<minor_faults>, C<major_faults>,
C<blocks_in>, C<blocks_out>, C<voluntary_switches>, C<involuntary_switches>.

=head2 limit_events

A hash of how often the child, with all that it started, has reached its limits (C<memory_max>, C<tasks_max>): C<oom_kills>, processes that the kernel has
killed for want of memory; C<memory_max>, how often the memory was about to exceed its limit; C<tasks_max>, forks that failed. undef before it has
been waited for, and without limits.

=head2 cold_reason

    print $child->cold_reason // 'warm';

Why the launch was not warm (L<Forkless::Warm>). undef if it was, or if the command has no set of templates.

=head2 route

A description of how the child was launched.

=head2 skipped

A list of messages, one for each best-effort step that failed and was skipped.

=head2 release

    my $pid = $child->release;

Returns the pid, for C<waitpid>, and gives up the child: the other methods then throw an exception.

=head1 FUNCTIONS

=head2 signal_number

    my $number = Forkless::Child::signal_number('SIGTERM');

The number of a signal.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>, L<Forkless::WaitSet>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
