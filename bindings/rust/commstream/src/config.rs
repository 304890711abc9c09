use std::ffi::CString;
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
            open_timeout_ns: nanoseconds(self.open_timeout),
            operation_timeout_ns: nanoseconds(self.operation_timeout),
            ..Default::default()
        };
        call(&mut config)
    }
}

fn text(name: &str, value: Option<&str>) -> Result<Option<CString>> {
    value
        .map(|value| CString::new(value).map_err(|_| Error::new(ErrorKind::Argument, format!("{name} has a zero byte; expected none"))))
        .transpose()
}
