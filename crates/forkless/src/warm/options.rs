//! The configuration of a set of templates.

use super::Warm;
use super::library::Library;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The configuration of a [`Warm`].
///
/// ```no_run
/// use forkless::warm::WarmOptions;
/// use std::time::Duration;
/// let warm = WarmOptions::new().templates(4).idle(Duration::from_secs(30)).open()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WarmOptions {
    library: Option<PathBuf>,
    limits: Limits,
}

/// How many templates there are, and how long each serves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) templates: usize,
    pub(super) idle: Duration,
    pub(super) life: Duration,
    pub(super) launches: u32,
}

impl Default for WarmOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl WarmOptions {
    /// The defaults: 16 templates, each for at most 100 launches and 10 minutes, and for 1 minute without a launch.
    ///
    /// ```
    /// let options = forkless::warm::WarmOptions::new();
    /// ```
    pub fn new() -> Self {
        let limits =
            Limits { templates: 16, idle: Duration::from_secs(60), life: Duration::from_secs(600), launches: 100 };
        Self { library: None, limits }
    }

    /// Sets the path of `libforkless_warm.so`. By default it is searched for, in this order:
    ///
    /// 1. beside the file that contains this code (the program, or `libforkless.so`), and in the directory `forkless`
    ///    there;
    /// 2. if that directory is named `bin`: in `../lib/forkless` and `../lib/x86_64-linux-gnu/forkless`;
    /// 3. in `/usr/local/lib/forkless`, `/usr/lib/x86_64-linux-gnu/forkless`, `/usr/lib/forkless` and
    ///    `/usr/lib64/forkless`.
    ///
    /// It becomes part of the programs that are started. So the search uses no file that another user than root and the
    /// effective one owns or may write to, or may replace: the same holds for each directory above it. A program with more
    /// rights than its user (setuid, capabilities) searches only in the last four directories. A path that is set here is
    /// not checked.
    ///
    /// ```
    /// let mut options = forkless::warm::WarmOptions::new();
    /// options.library("/opt/forkless/lib/forkless/libforkless_warm.so");
    /// ```
    pub fn library<P: AsRef<Path>>(&mut self, library: P) -> &mut Self {
        self.library = Some(library.as_ref().to_owned());
        self
    }

    /// Sets the number of templates that are kept at most (default: 16). The one that was not used for the longest time
    /// makes room. 0: all launches are cold. Each template has a thread of this process, which sleeps until the template and
    /// its children have ended.
    ///
    /// ```
    /// let mut options = forkless::warm::WarmOptions::new();
    /// options.templates(4);
    /// ```
    pub fn templates(&mut self, count: usize) -> &mut Self {
        self.limits.templates = count;
        self
    }

    /// Sets the time without a launch after which a template ends (default: 1 minute).
    ///
    /// ```
    /// let mut options = forkless::warm::WarmOptions::new();
    /// options.idle(std::time::Duration::from_secs(5));
    /// ```
    pub fn idle(&mut self, idle: Duration) -> &mut Self {
        self.limits.idle = idle;
        self
    }

    /// Sets the time after which a template ends in any case (default: 10 minutes). All children of a template have the
    /// same layout of their memory. Its successor is started by a launch in the last quarter of this time.
    ///
    /// ```
    /// let mut options = forkless::warm::WarmOptions::new();
    /// options.life(std::time::Duration::from_secs(60));
    /// ```
    pub fn life(&mut self, life: Duration) -> &mut Self {
        self.limits.life = life;
        self
    }

    /// Sets the number of launches of a template (default: 100). Its successor is started in the last quarter of them.
    ///
    /// ```
    /// let mut options = forkless::warm::WarmOptions::new();
    /// options.launches(1000);
    /// ```
    pub fn launches(&mut self, launches: u32) -> &mut Self {
        self.limits.launches = launches;
        self
    }

    /// Makes a set with this configuration. It has no templates yet.
    ///
    /// ```no_run
    /// let warm = forkless::warm::WarmOptions::new().open()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if `libforkless_warm.so` is not there, or others may replace it; `InvalidInput` if its path is not
    /// absolute, or contains a character that separates the entries of `LD_PRELOAD`.
    pub fn open(&self) -> io::Result<Warm> {
        let library = match &self.library {
            Some(path) => Library::named(path)?,
            None => Library::find()?,
        };
        Ok(Warm::with(library, self.limits))
    }
}
