/* `cargo xtask mutants` appends this file to bindings/perl/start.h in its copy of the tree. */
#include <stdlib.h>
#include <string.h>
#define PLANTED(name) (getenv("FORKLESS_PLANTED") != NULL && strcmp(getenv("FORKLESS_PLANTED"), name) == 0)
