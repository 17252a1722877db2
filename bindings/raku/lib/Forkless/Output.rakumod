# The output streams of a child, as supplies.
unit module Forkless::Output;

use Forkless::Native;
use Forkless::Waiter;

# A Supply that starts to read the pipe when it is tapped, and that can give the pipe's descriptor away instead.
class OutputPipe is Supply is export {
    has &.descriptor;
    method native-descriptor(--> Promise) { &!descriptor() }
}

my class OnTap does Tappable {
    has Tappable $.delegate;
    has &.tapped;
    # Why the child has not started.
    has &.failure;
    method tap(|arguments) {
        with &!failure() -> $why {
            my (&, &, &quit, &tap) := arguments.list;
            my $tap = Tap.new({ Nil });
            tap($tap);
            quit($why);
            return $tap;
        }
        &!tapped();
        $!delegate.tap(|arguments)
    }
    method live { $!delegate.live }
    method serial { $!delegate.serial }
    method sane { $!delegate.sane }
}

# One of the child's output streams.
class Output is export {
    has Str $.name;
    has Bool $.bin;
    has Supplier::Preserving $.supplier .= new;
    has Lock $!lock .= new;
    has Promise $!descriptor .= new;
    # Descriptor, once the child has started; what happens with it.
    has Int $!fd;
    has Bool $!tapped = False;
    has Bool $!given = False;
    has $!scheduler;
    has &!finished;
    has $!failure;
    # Data for the taps, which one task of the scheduler takes at a time, so that it stays in order.
    has @!queue;
    has Bool $!running = False;

    method bytes(--> Supply) { self!pipe($!supplier.Supply) }

    # The setting's decoder of supplies is internal to Rakudo. Encoding::Decoder is documented.
    method chars(Str $enc, $translate-nl --> Supply) {
        my $bytes = $!supplier.Supply;
        my $encoding = Encoding::Registry.find($enc);
        self!pipe(supply {
            my $decoder = $encoding.decoder(:$translate-nl);
            whenever $bytes {
                $decoder.add-bytes($_);
                my $text = $decoder.consume-available-chars;
                emit $text if $text.chars;
                LAST {
                    my $rest = $decoder.consume-all-chars;
                    emit $rest if $rest.chars;
                }
            }
        })
    }

    method !pipe(Supply $supply --> Supply) {
        my $tappable = OnTap.new(delegate => $supply.Tappable, tapped => { self.tapped }, failure => { $!failure });
        OutputPipe.bless(:$tappable, descriptor => { self.descriptor })
    }

    # The child has started, with this descriptor of its pipe. Calls &finished when nothing more comes of it.
    method started(Int $fd, $scheduler, &!finished --> Nil) {
        my ($read, $give) = $!lock.protect: {
            $!fd = $fd;
            $!scheduler = $scheduler;
            (?($!tapped && !$!given), ?$!given)
        }
        if $give {
            $!fd = Int;
            $!descriptor.keep($fd);
            &!finished();
        }
        self!read if $read;
    }

    # The child has not started. Whoever taps a supply, or asks for the descriptor, gets that as the answer, before and after.
    method failed(Exception $why, $scheduler --> Nil) {
        $!failure = $why;
        $!descriptor.break($why);
        # For those that have tapped already. One that does not handle it ends the program, as with Rakudo's own.
        $scheduler.cue({ $!supplier.quit($why) }) if $!tapped;
    }

    method tapped(--> Nil) {
        my $read = $!lock.protect: {
            my $first = !$!tapped && !$!given;
            $!tapped = True;
            $first && $!fd.defined
        }
        self!read if $read;
    }

    method is-tapped(--> Bool) { $!lock.protect: { $!tapped } }

    method descriptor(--> Promise) {
        my $fd = $!lock.protect: {
            my $first = !$!given && !$!tapped;
            $!given = True if $first;
            my $fd = $first ?? $!fd !! Int;
            $!fd = Int if $fd.defined;
            $fd
        }
        if $fd.defined {
            $!descriptor.keep($fd);
            &!finished();
        }
        $!descriptor
    }

    method !read {
        on-data($!fd, { self!queue($_) }, { self!queue(Any) });
    }

    # In the waiter's thread, which runs no code of the user.
    method !queue($data) {
        my $idle = $!lock.protect: {
            @!queue.push($data);
            my $idle = !$!running;
            $!running = True;
            $idle
        }
        $!scheduler.cue({ self!emit }) if $idle;
    }

    method !emit {
        loop {
            my @all = $!lock.protect: {
                $!running = False unless @!queue;
                @!queue.splice
            }
            last unless @all;
            for @all -> $data {
                if $data.defined {
                    $!supplier.emit($data);
                }
                else {
                    $!supplier.done;
                    $!fd = Int;
                    &!finished();
                }
            }
        }
    }

    # A stream that was neither tapped nor given away.
    submethod DESTROY { close($!fd) if $!fd.defined && !$!tapped }
}
