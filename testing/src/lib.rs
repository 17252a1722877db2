//! What the tests of all crates and the tasks of `xtask` need before they can begin: the C libraries installed, the language modules
//! built, Debian's and Python's packages. Depends on no crate of the workspace, so it works when they do not compile.

pub mod dist;
pub mod installed;
pub mod modules;
pub mod packages;
mod preload_link;
pub mod raku;
pub mod surroundings;
