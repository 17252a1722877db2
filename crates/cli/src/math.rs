//! The functions of libm that the charts of `bench` need. To load libm.so would make every `forkless run` slower.
//!
//! The linker takes these instead of libm's.

macro_rules! functions {
    ($($name:ident($($arg:ident),*);)*) => {$(
        // SAFETY: the name and the type of C's function, and its meaning.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: f64),*) -> f64 {
            libm::$name($($arg),*)
        }
    )*};
}

functions! {
    pow(base, exponent);
    log(value);
    log10(value);
}

/// # Safety
/// As in C: the numbers may be written to `sine` and `cosine`.
// SAFETY: the name and the type of C's function, and its meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn sincos(angle: f64, sine: *mut f64, cosine: *mut f64) {
    let (sin, cos) = libm::sincos(angle);
    // SAFETY: the caller's numbers.
    unsafe {
        *sine = sin;
        *cosine = cos;
    }
}
