# A program was not started, or its status is not known. The role is that of Proc::Async's exceptions, so that their
# handlers catch these, too.
unit class X::Forkless does X::OS;

# The errno; the step of the launch, FORKLESS_STEP_... of forkless.h. 0: not known.
has Int $.errno = 0;
has Int $.step = 0;
