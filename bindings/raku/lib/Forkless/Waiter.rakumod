# One thread for all children: it waits for their ends and for their pipes, with epoll(7), and runs nothing of the user. It
# looks at them every 0.1 to 2 milliseconds while there are any.
unit module Forkless::Waiter;

use NativeCall;
use Forkless::Native;
use Forkless::Launch;
use X::Forkless;

constant EPOLL_CLOEXEC = 0o2000000;
constant ADD = 1;
constant DEL = 2;
constant O_NONBLOCK = 0o4000;
constant F_SETFL = 4;
# struct epoll_event is packed on x86-64 only.
constant DATA = $*KERNEL.hardware.starts-with('x86_64') ?? 4 !! 8;
constant EVENT = DATA + 8;
constant BATCH = 128;
# Seconds between two looks at the descriptors.
constant SHORTEST = 0.0001e0;
constant LONGEST = 0.002e0;
constant EPIPE = 32;
constant CHUNK = 65536;
# What a watch returns that has to be called again, later.
enum Later <NOT-YET>;

class Loop {
    has Int $!epoll;
    has Lock $!lock .= new;
    # By number, not by descriptor: a descriptor may already be that of another file when its event is looked at.
    has %!watches;
    has Int $!next = 0;
    # Released when there is something to watch.
    has Semaphore $!work .= new(0);
    # For data that the thread reads.
    has buf8 $.chunk = buf8.allocate(CHUNK);

    submethod TWEAK {
        $!epoll = epoll_create1(EPOLL_CLOEXEC);
        X::Forkless.new(os-error => 'failed to wait for children: no epoll descriptor').throw
          if $!epoll < 0;
        # app_lifetime: a program can end while its children run.
        Thread.start(:app_lifetime, :name<forkless>, { self!run });
    }

    # Calls &ready in the thread with the number of the watch, while the descriptor has one of the events: after a pause if
    # it returns NOT-YET. Returns the number.
    method watch(Int $fd, Int $events, &ready --> Int) {
        # A block gives its last variable, not the value: that of $!next would be read after the lock, with another's number.
        my $number;
        $!lock.protect: {
            $!work.release unless %!watches;
            $number = ++$!next;
            %!watches{$number} = &ready;
        };
        my $event = buf8.allocate(EVENT);
        $event.write-uint32(0, $events);
        $event.write-uint64(DATA, $number);
        if epoll_ctl($!epoll, ADD, $fd, $event) < 0 {
            $!lock.protect: { %!watches{$number}:delete };
            X::Forkless.new(os-error => 'failed to wait for a child: epoll_ctl').throw;
        }
        $number
    }

    # Must come before the descriptor is closed.
    method unwatch(Int $fd, Int $number --> Nil) {
        epoll_ctl($!epoll, DEL, $fd, buf8.allocate(EVENT));
        $!lock.protect: { %!watches{$number}:delete };
    }

    method watched(--> Int) { $!lock.protect: { %!watches.elems } }

    method !run {
        my $events = buf8.allocate(EVENT * BATCH);
        my $pause = SHORTEST;
        loop {
            # Without blocking: see Native. `sleep` and `acquire` let other threads collect garbage meanwhile.
            my $found = epoll_wait($!epoll, $events, BATCH, 0);
            if $found > 0 && self!call($events, $found) {
                $pause = SHORTEST;
            }
            elsif $!lock.protect({ !%!watches }) {
                $!work.acquire;
                $pause = SHORTEST;
            }
            else {
                sleep $pause;
                $pause = $pause * 1.5 min LONGEST;
            }
        }
    }

    # False if none of them could do anything yet.
    method !call(buf8 $events, Int $found --> Bool) {
        my $done = False;
        for ^$found -> $n {
            my $number = $events.read-uint64(EVENT * $n + DATA);
            my $ready = $!lock.protect: { %!watches{$number} };
            # Its watch may have been removed since.
            $done = True unless $ready && $ready($number) === NOT-YET;
            CATCH { default { $done = True; note "forkless: {.message}" } }
        }
        $done
    }
}

my Lock $making .= new;
my Loop $loop;

# The thread, which the first call starts. Throws if there is no descriptor for it; a later call tries again.
sub waiter(--> Loop) is export {
    $loop // $making.protect: { $loop //= Loop.new }
}

# Calls &ended in the thread with the child's status, or with the exception if that is not known.
sub on-end(Child $child, &ended --> Nil) is export {
    my $fd = $child.pidfd;
    waiter().watch($fd, POLLIN, -> $number {
        my $status = try $child.try-wait;
        my $failed = $status.defined ?? Exception !! $!;
        if $status.defined || $failed.defined {
            waiter().unwatch($fd, $number);
            $child.free;
            ended($status, $failed);
            Nil
        }
        else {
            # Somebody has to read standard error first.
            NOT-YET
        }
    });
}

# After a failed read: a terminal can fail with EIO a moment before its last bytes are there, and it does not block.
sub is-open(Int $fd --> Bool) {
    my $fds = pollfds($fd => POLLIN);
    my $events = poll($fds, 1, 0) < 0 ?? 0 !! found($fds, 0);
    !$events || ?($events +& POLLIN)
}

# Calls &data in the thread with all that can be read from the descriptor, in its order, and then &done. Closes it.
sub on-data(Int $fd, &data, &done --> Nil) is export {
    waiter().watch($fd, POLLIN, -> $number {
        my $chunk = waiter().chunk;
        my $count = read($fd, $chunk, $chunk.elems);
        if $count > 0 {
            data($chunk.subbuf(0, $count));
        }
        elsif $count < 0 && is-open($fd) {
            NOT-YET
        }
        else {
            waiter().unwatch($fd, $number);
            close($fd);
            done();
        }
    });
}

# Writes to a pipe without blocking, in the order of the calls. What the pipe does not take at once, the thread writes.
class Writer is export {
    has Int $.fd;
    has Lock $!lock .= new;
    # Data that has to be written, each with its start and the vow of its promise.
    has @!queue;
    has Int $!number;
    has Bool $!closing = False;

    submethod TWEAK { fcntl($!fd, F_SETFL, O_NONBLOCK) }

    # A promise of the number of bytes, broken if nothing reads the pipe any more.
    method write(Blob $elements --> Promise) {
        # Encodings such as UTF-16 have elements of more than a byte.
        my $data = $elements.bytes == $elements.elems
            ?? $elements
            !! blob8.new(nativecast(CArray[uint8], $elements)[^$elements.bytes]);
        my $promise = Promise.new;
        my $vow = $promise.vow;
        # Promises are kept outside the lock.
        my @done = $!lock.protect: {
            if $!fd < 0 || $!closing {
                (-> { $vow.break(X::Forkless.new(:errno(EPIPE), os-error => 'failed to write: standard input is closed')) },)
            }
            else {
                @!queue.push([$data, 0, $vow]);
                $!number.defined ?? () !! self!flush
            }
        }
        $_() for @done;
        $promise
    }

    # Closes the pipe when all has been written.
    method close(--> Nil) {
        $!lock.protect: {
            $!closing = True;
            self!close unless @!queue;
        }
    }

    # Closes it at once. What was not written is not written.
    method discard(--> Nil) {
        my @lost = $!lock.protect: {
            $!closing = True;
            my @vows = @!queue.splice.map(*.[2]);
            self!close;
            @vows
        };
        .break(X::Forkless.new(:errno(EPIPE), os-error => 'failed to write: the program has ended')) for @lost;
    }

    # The child has ended: closes the pipe, if nothing waits to be written, for which another process may be there.
    method ended(--> Nil) { self.close }

    method !close {
        if $!fd >= 0 {
            waiter().unwatch($!fd, $!number) if $!number.defined;
            $!number = Int;
            close($!fd);
            $!fd = -1;
        }
    }

    # Writes what the pipe takes, with the lock. Returns what is to be called without it.
    method !flush {
        my @done;
        while @!queue {
            my ($data, $start, $vow) = @!queue[0][];
            my $rest = $start ?? $data.subbuf($start) !! $data;
            my $count = $rest.elems ?? write($!fd, $rest, $rest.elems) !! 0;
            if $count == $rest.elems {
                @!queue.shift;
                @done.push(-> { $vow.keep($data.elems) });
            }
            elsif $count > 0 {
                @!queue[0][1] += $count;
            }
            elsif self!unread {
                for @!queue.splice {
                    my $vow = .[2];
                    @done.push(-> {
                        $vow.break(X::Forkless.new(:errno(EPIPE), os-error => 'failed to write: broken pipe'))
                    });
                }
            }
            else {
                $!number //= waiter().watch($!fd, POLLOUT, -> $ {
                    my @done = $!lock.protect: { $!fd >= 0 ?? self!flush !! () };
                    $_() for @done;
                });
                return @done;
            }
        }
        if $!number.defined {
            waiter().unwatch($!fd, $!number);
            $!number = Int;
        }
        self!close if $!closing;
        @done
    }

    # Has the pipe no reader, or the terminal no program? errno would not do: the virtual machine makes system calls of its own before it is read.
    method !unread(--> Bool) {
        my $fds = pollfds($!fd => POLLOUT);
        poll($fds, 1, 0) > 0 && ?(found($fds, 0) +& (POLLERR +| POLLHUP))
    }
}
