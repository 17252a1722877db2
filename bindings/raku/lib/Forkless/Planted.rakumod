# Faults that the project's trials of its tests plant. They replace this file by one whose function compares the name.
unit module Forkless::Planted;

sub PLANTED(Str $ --> Bool) is export { False }
