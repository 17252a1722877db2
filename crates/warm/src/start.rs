//! The functions of libc that this library interposes.

use crate::template;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

/// `main(3)`.
type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// `__libc_start_main`, as the Linux Standard Base has it.
type StartMain = unsafe extern "C" fn(
    Option<Main>,
    c_int,
    *mut *mut c_char,
    Option<unsafe extern "C" fn()>,
    Option<unsafe extern "C" fn()>,
    Option<unsafe extern "C" fn()>,
    *mut c_void,
) -> c_int;

/// A handler of `pthread_atfork(3)`.
type Handler = Option<unsafe extern "C" fn()>;

/// `__register_atfork`.
type RegisterAtfork = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Whether a library registered fork handlers while it was loaded.
static HAS_FORK_HANDLERS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `dlsym(3)` RTLD_NEXT: libc's own function. Null if it does not exist.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in NUL, and RTLD_NEXT is -1.
    unsafe { dlsym(usize::MAX as *mut c_void, name.as_ptr()) }
}

/// Whether handlers of `pthread_atfork(3)` would have to run in a child. A raw clone skips them.
fn has_fork_handlers() -> bool {
    HAS_FORK_HANDLERS.load(Relaxed)
}

/// Interposes the function that `_start` calls first. In a template, [`template::stop`] returns once in each child.
#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_start_main(
    main: Option<Main>,
    argc: c_int,
    argv: *mut *mut c_char,
    init: Option<unsafe extern "C" fn()>,
    fini: Option<unsafe extern "C" fn()>,
    rtld_fini: Option<unsafe extern "C" fn()>,
    stack_end: *mut c_void,
) -> c_int {
    // Looked up here: a child must not call the loader before it is the program.
    let libc = next(c"__libc_start_main");
    if libc.is_null() {
        forkless_core::sys::exit(127);
    }
    // SAFETY: libc's function of this name has this type.
    let libc: StartMain = unsafe { transmute(libc) };
    // SAFETY: `_start` passes the arguments that the kernel put on the stack.
    let (argc, argv) = unsafe { template::stop(argc, argv, has_fork_handlers()) };
    // SAFETY: the program's own arguments, or the child's.
    unsafe { libc(main, argc, argv, init, fini, rtld_fini, stack_end) }
}

/// Interposes the function that `pthread_atfork(3)` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    object: *mut c_void,
) -> c_int {
    HAS_FORK_HANDLERS.store(true, Relaxed);
    let libc = next(c"__register_atfork");
    if libc.is_null() {
        const ENOMEM: c_int = 12;
        return ENOMEM;
    }
    // SAFETY: libc's function of this name has this type, and the arguments are the caller's.
    unsafe { transmute::<*mut c_void, RegisterAtfork>(libc)(prepare, parent, child, object) }
}
