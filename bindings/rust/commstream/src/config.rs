use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use commstream_sys as ffi;

use crate::inside;
use crate::{nanoseconds, Communicator, Error, ErrorKind, Result};

/// Who moves work while no thread of the program is inside the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Progress {
    /// A progress thread if there are several ranks and the host has more usable CPUs than ranks, otherwise nobody.
    Auto = ffi::COMM_PROGRESS_AUTO,
    /// Nobody: work moves inside calls.
    Caller = ffi::COMM_PROGRESS_CALLER,
    /// A progress thread.
    Thread = ffi::COMM_PROGRESS_THREAD,
}

/// Where callbacks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Callbacks {
    /// On any thread that makes progress: in a wait or test, or on the progress thread.
    Anywhere = ffi::COMM_NOTIFY_ANY,
    /// Only inside [`Communicator::progress`] and when a communicator is closed: for event loops.
    InProgress = ffi::COMM_NOTIFY_PROGRESS,
}

/// The order of operands in reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// The same call gives the same bits with every backend.
    Fixed = ffi::COMM_ORDER_FIXED,
    /// The order of the backend's library.
    Free = ffi::COMM_ORDER_FREE,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum LogLevel {
    /// Nothing.
    Off = ffi::COMM_LOG_OFF,
    /// Errors.
    Error = ffi::COMM_LOG_ERROR,
    /// And warnings.
    Warning = ffi::COMM_LOG_WARNING,
    /// And, once, what was chosen and why.
    Info = ffi::COMM_LOG_INFO,
    /// And connections, progress and the like.
    Debug = ffi::COMM_LOG_DEBUG,
    /// And each operation.
    Trace = ffi::COMM_LOG_TRACE,
}

/// The identity of a world, made on rank 0 and given to the other ranks by private means: instead of an address and a secret.
#[derive(Clone)]
pub struct Id(ffi::comm_id);

impl Id {
    /// Makes an identity. It can be used once. For `tcp`, rank 0 must open soon, and on this host.
    pub fn new(backend: Option<&str>) -> Result<Id> {
        inside::may_start()?;
        let mut id = ffi::comm_id { bytes: [0; 128] };
        let mut config = Config::new();
        if let Some(backend) = backend {
            config = config.backend(backend);
        }
        // SAFETY: the strings live until the call returns.
        config.with(|config| match unsafe { ffi::comm_id_create(config, &mut id) } {
            ffi::COMM_OK => Ok(()),
            result => Err(Error::plain(result)),
        })?;
        Ok(Id(id))
    }

    /// Its bytes, to be sent to other ranks.
    pub fn bytes(&self) -> &[u8; 128] {
        &self.0.bytes
    }

    /// The identity that these are the bytes of.
    pub fn from_bytes(bytes: [u8; 128]) -> Id {
        Id(ffi::comm_id { bytes })
    }
}

/// How to open a world. What is not set comes from the environment: a launcher's variables and `COMM_...` (docs/reference/options.md).
#[derive(Clone, Default)]
pub struct Config {
    rank: i32,
    ranks: i32,
    backend: Option<String>,
    device: Option<String>,
    address: Option<String>,
    options: Vec<String>,
    id: Option<Id>,
    secret: Option<Vec<u8>>,
    progress: Option<Progress>,
    callbacks: Option<Callbacks>,
    order: Option<Order>,
    log_level: Option<LogLevel>,
    log: Option<fn(LogLevel, &str)>,
    engine_of: Option<Communicator>,
    open_timeout: Duration,
    operation_timeout: Duration,
}

impl Config {
    /// Everything from the environment.
    pub fn new() -> Config {
        Config::default()
    }

    /// This rank and the number of ranks, for programs that no launcher starts.
    pub fn rank(mut self, rank: i32, ranks: i32) -> Config {
        (self.rank, self.ranks) = (rank, ranks);
        self
    }

    /// auto, local, shm, tcp, shm+tcp, mpi, shm+mpi, nccl or cuda.
    pub fn backend(mut self, name: &str) -> Config {
        self.backend = Some(name.into());
        self
    }

    /// The device of this rank, such as "cuda:0".
    pub fn device(mut self, name: &str) -> Config {
        self.device = Some(name.into());
        self
    }

    /// For tcp `HOST:PORT` of rank 0 or `file:PATH`; otherwise a name where ranks of a host meet.
    pub fn address(mut self, address: &str) -> Config {
        self.address = Some(address.into());
        self
    }

    /// An option of docs/reference/options.md. The environment overrides it.
    pub fn option(mut self, key: &str, value: &str) -> Config {
        self.options.push(format!("{key}={value}"));
        self
    }

    /// Instead of an address and a secret.
    pub fn id(mut self, id: Id) -> Config {
        self.id = Some(id);
        self
    }

    /// The secret of the job, at least 16 bytes: ranks prove to each other that they have it.
    pub fn secret(mut self, secret: &[u8]) -> Config {
        self.secret = Some(secret.into());
        self
    }

    /// Who moves work while no thread of the program is inside the library.
    pub fn progress(mut self, progress: Progress) -> Config {
        self.progress = Some(progress);
        self
    }

    /// Where callbacks run ([`Request::on_complete`](crate::Request::on_complete)); anywhere if not set.
    pub fn callbacks(mut self, callbacks: Callbacks) -> Config {
        self.callbacks = Some(callbacks);
        self
    }

    /// The order of operands in reductions. Fixed if not set, except for backends mpi and nccl where they are named.
    pub fn order(mut self, order: Order) -> Config {
        self.order = Some(order);
        self
    }

    /// How much is logged; errors and warnings if not set. `COMM_LOG` overrides it.
    pub fn log_level(mut self, level: LogLevel) -> Config {
        self.log_level = Some(level);
        self
    }

    /// Receives the log, which goes to standard error otherwise. A thread of the library calls it, one line after the other, so it may block or
    /// lock. A world that joins an engine has the log of that engine.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Config, LogLevel};
    ///
    /// let world = Config::new().log_level(LogLevel::Info).log(|level, line| eprintln!("{level:?} {line}")).open()?;
    /// # world.barrier() }
    /// ```
    pub fn log(mut self, log: fn(LogLevel, &str)) -> Config {
        self.log = Some(log);
        self
    }

    /// Joins the engine of another world's communicator: one wait moves both, and events work in both.
    pub fn engine_of(mut self, other: &Communicator) -> Config {
        self.engine_of = Some(other.clone());
        self
    }

    /// How long opening waits for the other ranks; 60 s if not set.
    pub fn open_timeout(mut self, timeout: Duration) -> Config {
        self.open_timeout = timeout;
        self
    }

    /// The deadline of each operation; 1,800 s if not set.
    pub fn operation_timeout(mut self, timeout: Duration) -> Config {
        self.operation_timeout = timeout;
        self
    }

    /// Opens the world. Collective; it waits until all ranks have come.
    pub fn open(&self) -> Result<Communicator> {
        self.with(Communicator::open_with)
    }

    /// Opens the world by an exchange of the program's own, such as an allgather of MPI, instead of an address. Collective.
    ///
    /// `exchange` gets bytes of this rank and returns those of all ranks, in rank order. It is called here, several times, and as often on
    /// every rank. Its error ends the opening on this rank, which returns it. [`Config::rank`] has to be set.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// # let (rank, ranks) = (0, 1);
    /// # let allgather = |mine: &[u8]| mine.to_vec();
    /// let world = commstream::Config::new().rank(rank, ranks).open_by(|mine| Ok(allgather(mine)))?;
    /// # world.barrier() }
    /// ```
    pub fn open_by(&self, mut exchange: impl FnMut(&[u8]) -> Result<Vec<u8>>) -> Result<Communicator> {
        let ranks = usize::try_from(self.ranks).unwrap_or(0);
        if ranks == 0 {
            let text = format!("open_by: ranks is {}; expected 1 or more, by Config::rank", self.ranks);
            return Err(Error::new(ErrorKind::Argument, text));
        }
        let mut meeting = Meeting { exchange: &mut exchange, ranks, failed: None };
        let at: *mut Meeting<'_> = &mut meeting;
        let opened = self.with(|config| {
            config.exchange = Some(call_exchange);
            config.exchange_arg = at.cast();
            Communicator::open_with(config)
        });
        opened.map_err(|error| meeting.failed.unwrap_or(error))
    }

    /// Opens a world whose ranks are threads of this process, and returns the communicator of each: for tests, and for several devices in
    /// one process.
    pub fn open_ranks(&self, ranks: i32) -> Result<Vec<Communicator>> {
        self.with(|config| Communicator::open_ranks(config, ranks, std::ptr::null()))
    }

    /// As [`Config::open_ranks`], with a rank for each of these devices, such as "cuda:0"; `None`: memory of the host. With backends nccl and
    /// cuda.
    pub fn open_devices(&self, devices: &[Option<&str>]) -> Result<Vec<Communicator>> {
        let names: Vec<Option<CString>> = devices.iter().map(|name| text("device", *name)).collect::<Result<_>>()?;
        let at: Vec<_> = names.iter().map(|name| name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr())).collect();
        let ranks = i32::try_from(devices.len()).unwrap_or(i32::MAX);
        self.with(|config| Communicator::open_ranks(config, ranks, at.as_ptr()))
    }

    fn with<R>(&self, call: impl FnOnce(&mut ffi::comm_config) -> Result<R>) -> Result<R> {
        let backend = text("backend", self.backend.as_deref())?;
        let device = text("device", self.device.as_deref())?;
        let address = text("address", self.address.as_deref())?;
        let options = text("option", Some(self.options.join(",")).filter(|all| !all.is_empty()).as_deref())?;
        let at = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let mut config = ffi::comm_config {
            size: std::mem::size_of::<ffi::comm_config>(),
            rank: self.rank,
            ranks: self.ranks,
            backend: at(&backend),
            device: at(&device),
            address: at(&address),
            options: at(&options),
            id: self.id.as_ref().map_or(std::ptr::null(), |id| &id.0),
            secret: self.secret.as_ref().map_or(std::ptr::null(), |secret| secret.as_ptr().cast()),
            secret_bytes: self.secret.as_ref().map_or(0, Vec::len),
            progress: self.progress.unwrap_or(Progress::Auto) as ffi::comm_progress_mode,
            notify: self.callbacks.map_or(ffi::COMM_NOTIFY_DEFAULT, |callbacks| callbacks as ffi::comm_notify_mode),
            order: self.order.map_or(ffi::COMM_ORDER_DEFAULT, |order| order as ffi::comm_order),
            log_level: self.log_level.map_or(ffi::COMM_LOG_DEFAULT, |level| level as ffi::comm_log_level),
            engine_of: self.engine_of.as_ref().map_or(std::ptr::null_mut(), |other| other.handle.raw()),
            log: self.log.map(|_| call_log as unsafe extern "C" fn(*mut c_void, c_int, *const c_char)),
            log_arg: self.log.map_or(std::ptr::null_mut(), |log| log as *mut c_void),
            open_timeout_ns: nanoseconds(self.open_timeout),
            operation_timeout_ns: nanoseconds(self.operation_timeout),
            ..Default::default()
        };
        call(&mut config)
    }
}

impl LogLevel {
    fn of(level: c_int) -> LogLevel {
        match level {
            ffi::COMM_LOG_ERROR => LogLevel::Error,
            ffi::COMM_LOG_WARNING => LogLevel::Warning,
            ffi::COMM_LOG_INFO => LogLevel::Info,
            ffi::COMM_LOG_DEBUG => LogLevel::Debug,
            _ => LogLevel::Trace,
        }
    }
}

/// # Safety
/// `log` is the program's function; the line ends with a zero byte.
unsafe extern "C" fn call_log(log: *mut c_void, level: c_int, line: *const c_char) {
    // SAFETY: the caller's.
    let (log, line) = unsafe { (std::mem::transmute::<*mut c_void, fn(LogLevel, &str)>(log), CStr::from_ptr(line)) };
    if let Err(payload) = catch_unwind(|| log(LogLevel::of(level), &line.to_string_lossy())) {
        let _ = inside::text_of(payload); // it was reported
    }
}

/// What an exchange of the program's is called with.
struct Meeting<'a> {
    exchange: &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>>,
    ranks: usize,
    failed: Option<Error>,
}

impl Meeting<'_> {
    fn ask(&mut self, mine: &[u8]) -> Result<Vec<u8>> {
        let expected = mine.len() * self.ranks;
        let said = catch_unwind(AssertUnwindSafe(|| (self.exchange)(mine)));
        let all = said.unwrap_or_else(|payload| {
            Err(Error::new(ErrorKind::Aborted, format!("open_by: the exchange panicked: {}", inside::text_of(payload))))
        })?;
        if all.len() == expected {
            return Ok(all);
        }
        let text = format!("open_by: the exchange returned {} bytes; expected {expected}, those of {} ranks", all.len(), self.ranks);
        Err(Error::new(ErrorKind::Argument, text))
    }
}

/// # Safety
/// `meeting` is one that nobody else uses; `mine` has `bytes` bytes, and `all` room for those of all ranks.
unsafe extern "C" fn call_exchange(meeting: *mut c_void, mine: *const c_void, bytes: usize, all: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let (meeting, mine) = unsafe { (&mut *meeting.cast::<Meeting<'_>>(), std::slice::from_raw_parts(mine.cast::<u8>(), bytes)) };
    match meeting.ask(mine) {
        Ok(given) => {
            // SAFETY: it is as long as the room.
            unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), all.cast::<u8>(), given.len()) };
            0
        }
        Err(error) => {
            meeting.failed = Some(error);
            1
        }
    }
}

pub(crate) fn text(name: &str, value: Option<&str>) -> Result<Option<CString>> {
    value
        .map(|value| CString::new(value).map_err(|_| Error::new(ErrorKind::Argument, format!("{name} has a zero byte; expected none"))))
        .transpose()
}
