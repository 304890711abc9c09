use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use commstream_sys as ffi;

use crate::error::text_of;
use crate::{Communicator, Element, Error, ErrorKind, Op, Request, Result};

/// Counters of a communicator since it was made: [`Communicator::statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Collectives; a call that is several pieces of work, such as a split, counts as many.
    pub operations: u64,
    /// Sends, receives and calls on windows.
    pub messages: u64,
    /// Bytes published or sent, counted once for any number of readers.
    pub bytes_out: u64,
    /// Bytes read or received.
    pub bytes_in: u64,
    /// The most operations that were in the queue.
    pub queue_high_water: u64,
    /// Bytes sent on connections, with headers; 0 where ranks share memory.
    pub network_out: u64,
    /// Bytes received on connections, with headers; 0 where ranks share memory.
    pub network_in: u64,
}

/// Where a rank runs: [`Communicator::peer`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The number of its host.
    pub node: i32,
    /// Whether it runs on this host.
    pub local: bool,
    /// The name of its host.
    pub host: String,
    /// The backend that reaches it.
    pub backend: String,
    /// Its address, if the backend has one.
    pub address: String,
}

/// What happened to an operation: [`Request::describe`]. Times are of CLOCK_MONOTONIC.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// Its sequence number among the collectives; `None`: it has none, such as a message or a queue wait.
    pub sequence: Option<u64>,
    /// The bytes of one block of a collective (with counts, of the longest, or of this rank's own), or of a message's buffer.
    pub bytes: u64,
    /// When it was queued.
    pub queued: Duration,
    /// When it started; `None`: not yet.
    pub started: Option<Duration>,
    /// When it completed; `None`: not yet.
    pub completed: Option<Duration>,
    /// The algorithm that ran; or `mpi`, `nccl` or `cuda`, which did it; `nccl+kernel`, `nccl+host`: NCCL moved the inputs, and a
    /// kernel of the device or the host's reduced them.
    pub algorithm: String,
    /// The last rank that it had to wait for, if it is known.
    pub waited_for: Option<i32>,
    /// Whether a buffer was a device's, whose bytes went through memory of the host.
    pub staged: bool,
}

/// A collective call that a program might make, for [`Communicator::explain`] and [`Communicator::predict`].
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{Call, Communicator};
///
/// let world = Communicator::open()?;
/// let call = Call::new::<f32>("allreduce", 1 << 20).ranks(8);
/// println!("{}", world.explain(&call)?);
/// let time = world.predict(&call, None, None)?;
/// assert!(time.as_nanos() > 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Call {
    collective: String,
    length: usize,
    of: ffi::comm_type,
    op: Op,
    root: i32,
    ranks: i32,
}

impl Call {
    /// A call of this name with so many elements: the length of the smallest block, as for the call itself. Sums, root 0, and the ranks of
    /// the communicator that is asked.
    pub fn new<T: Element>(collective: &str, length: usize) -> Call {
        Call { collective: collective.into(), length: length * T::COUNT, of: T::TYPE, op: Op::Sum, root: 0, ranks: 0 }
    }

    /// Another operator.
    pub fn op(mut self, op: Op) -> Call {
        self.op = op;
        self
    }

    /// Another root.
    pub fn root(mut self, root: i32) -> Call {
        self.root = root;
        self
    }

    /// As if there were so many ranks.
    pub fn ranks(mut self, ranks: i32) -> Call {
        self.ranks = ranks;
        self
    }

    fn with<R>(&self, ask: impl FnOnce(&ffi::comm_call) -> Result<R>) -> Result<R> {
        let collective = c_text("collective", &self.collective)?;
        ask(&ffi::comm_call {
            size: std::mem::size_of::<ffi::comm_call>(),
            collective: collective.as_ptr(),
            n: self.length,
            type_: self.of,
            op: self.op as ffi::comm_op,
            root: self.root,
            ranks: self.ranks,
        })
    }
}

fn c_text(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(ErrorKind::Argument, format!("{what} has a zero byte; expected none")))
}

const TEXT_BYTES: usize = 16 << 10;

/// What the library knows.
impl Communicator {
    /// The counters of this communicator. Operations that are running count as far as they got.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut stats = ffi::comm_stats { size: std::mem::size_of::<ffi::comm_stats>(), ..Default::default() };
        // SAFETY: the structure has its size.
        self.handle.ask(|c| unsafe { ffi::comm_statistics(c, &mut stats) })?;
        Ok(Statistics {
            operations: stats.operations,
            messages: stats.messages,
            bytes_out: stats.bytes_out,
            bytes_in: stats.bytes_in,
            queue_high_water: stats.queue_high_water,
            network_out: stats.network_out,
            network_in: stats.network_in,
        })
    }

    /// Where a rank runs, and which backend reaches it.
    pub fn peer(&self, rank: i32) -> Result<Peer> {
        let mut info = ffi::comm_peer_info { size: std::mem::size_of::<ffi::comm_peer_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        self.handle.ask(|c| unsafe { ffi::comm_describe_peer(c, rank, &mut info) })?;
        Ok(Peer {
            node: info.node,
            local: info.local != 0,
            host: text_of(&info.host),
            backend: text_of(&info.wire),
            address: text_of(&info.address),
        })
    }

    /// Writes the last 2,000 operations, and all that are running, to a file that chrome://tracing and Perfetto read. It blocks as long as
    /// the file system does.
    pub fn write_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = CString::new(path.as_ref().as_os_str().as_bytes())
            .map_err(|_| Error::new(ErrorKind::Argument, "write_trace: path has a zero byte; expected none"))?;
        // SAFETY: the text lives until the call returns.
        self.handle.ask(|c| unsafe { ffi::comm_trace_dump(c, path.as_ptr()) })
    }

    fn told(&self, ask: impl FnOnce(*mut ffi::comm_communicator, *mut c_char, usize) -> ffi::comm_result) -> Result<String> {
        let mut text = vec![0 as c_char; TEXT_BYTES];
        self.handle.ask(|c| ask(c, text.as_mut_ptr(), text.len()))?;
        Ok(text_of(&text))
    }

    /// Which algorithm a call would use, why, and how long it and the others are predicted to take. Runs nothing.
    pub fn explain(&self, call: &Call) -> Result<String> {
        // SAFETY: what the structure names lives until the call returns.
        call.with(|call| self.told(|c, text, bytes| unsafe { ffi::comm_explain(c, call, text, bytes) }))
    }

    /// How long a call takes when all ranks make it repeatedly, one after another. Runs nothing.
    ///
    /// `algorithm`: `None`: the one that would be chosen. `machine`: the text of a machine file; `None`: the figures that this world uses.
    pub fn predict(&self, call: &Call, algorithm: Option<&str>, machine: Option<&str>) -> Result<Duration> {
        let algorithm = algorithm.map(|text| c_text("algorithm", text)).transpose()?;
        let machine = machine.map(|text| c_text("machine", text)).transpose()?;
        let at = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let mut ns = 0;
        call.with(|call| {
            // SAFETY: as for explain.
            self.handle.ask(|c| unsafe { ffi::comm_predict(c, call, at(&algorithm), at(&machine), &mut ns) })
        })?;
        Ok(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
    }

    /// The machine figures that this world uses for predictions, as the text of a machine file.
    pub fn machine(&self) -> Result<String> {
        // SAFETY: there is room for so many bytes.
        self.told(|c, text, bytes| unsafe { ffi::comm_describe_machine(c, text, bytes) })
    }
}

impl<O> Request<'_, O> {
    /// What happened to the operation so far.
    ///
    /// [`ErrorKind::Closed`] if it was waited for, or is not among the last 2,000 of its communicator.
    pub fn describe(&self) -> Result<Operation> {
        let request = self.raw()?;
        let mut info = ffi::comm_request_info { size: std::mem::size_of::<ffi::comm_request_info>(), ..Default::default() };
        let result = if request.comm.is_null() {
            ffi::COMM_ERR_CLOSED
        } else {
            // SAFETY: the structure has its size.
            unsafe { ffi::comm_describe_request(request, &mut info) }
        };
        if result != ffi::COMM_OK {
            return Err(Error::plain(result));
        }
        let time = |ns: u64| Some(Duration::from_nanos(ns)).filter(|time| !time.is_zero());
        Ok(Operation {
            sequence: Some(info.sequence).filter(|sequence| *sequence != 0),
            bytes: info.bytes,
            queued: Duration::from_nanos(info.queued_ns),
            started: time(info.started_ns),
            completed: time(info.completed_ns),
            algorithm: text_of(&info.algorithm),
            waited_for: Some(info.waited_for).filter(|rank| *rank >= 0),
            staged: info.flags & ffi::COMM_INFO_STAGED != 0,
        })
    }
}

/// The version of the C library that is running: major, minor and patch.
pub fn version() -> (u8, u8, u8) {
    // SAFETY: it may be called at any time.
    let version = unsafe { ffi::comm_version() };
    ((version >> 16) as u8, (version >> 8) as u8, version as u8)
}

/// A backend: [`backends`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Backend {
    /// Its name, as in [`Config::backend`](crate::Config::backend).
    pub name: String,
    /// The version of its library; empty: none.
    pub version: String,
    /// Why it cannot be used here; `None`: it can.
    pub missing: Option<String>,
    /// Whether any thread may call.
    pub threads: bool,
    /// Whether its reductions have a fixed order of operands.
    pub fixed_order: bool,
    /// Whether it works on memory of a device in place.
    pub device_buffers: bool,
}

/// The backends of the library, and which can be used here.
pub fn backends() -> Vec<Backend> {
    let mut all = Vec::new();
    loop {
        let mut info = ffi::comm_backend_info { size: std::mem::size_of::<ffi::comm_backend_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        if unsafe { ffi::comm_describe_backend(all.len(), &mut info) } != ffi::COMM_OK {
            return all;
        }
        all.push(Backend {
            name: text_of(&info.name),
            version: text_of(&info.version),
            missing: Some(text_of(&info.missing)).filter(|_| info.available == 0),
            threads: info.threads != 0,
            fixed_order: info.fixed_order != 0,
            device_buffers: info.device_buffers != 0,
        });
    }
}

/// An option of [`Config::option`](crate::Config::option): [`options`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OptionInfo {
    /// Its key; empty: only the environment sets it.
    pub key: &'static str,
    /// Its environment variable.
    pub environment: &'static str,
    /// The type of its value.
    pub kind: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// The unit of its value; empty: none.
    pub unit: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Another environment variable that is read; empty: none.
    pub also: &'static str,
    /// Which values are allowed.
    pub values: String,
}

/// The options of the library.
pub fn options() -> Vec<OptionInfo> {
    let mut all = Vec::new();
    loop {
        let mut info = ffi::comm_option_info { size: std::mem::size_of::<ffi::comm_option_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        if unsafe { ffi::comm_describe_option(all.len(), &mut info) } != ffi::COMM_OK {
            return all;
        }
        all.push(OptionInfo {
            key: lasting(info.key),
            environment: lasting(info.environment),
            kind: lasting(info.type_),
            default: lasting(info.default_text),
            unit: lasting(info.unit),
            also: lasting(info.also),
            help: lasting(info.help),
            values: text_of(&info.values),
        });
    }
}

/// A text of the library's, which is never freed.
fn lasting(text: *const c_char) -> &'static str {
    // SAFETY: it ends with a zero byte.
    let text = unsafe { text.as_ref() }.map(|first| unsafe { CStr::from_ptr(first) });
    text.and_then(|text| text.to_str().ok()).unwrap_or("")
}

/// An algorithm that option `algorithm` can name: [`algorithms`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Algorithm {
    /// The collective that it serves.
    pub collective: String,
    /// Its name.
    pub name: String,
    /// What it does, in a line.
    pub help: String,
    /// The smallest and the largest communicator that it serves.
    pub ranks: (i32, i32),
    /// Whether it serves blocks only up to a length that the backend sets.
    pub bounded: bool,
    /// Whether it is for several hosts; on one host it is used only if named.
    pub over_hosts: bool,
}

/// The algorithms of the library.
pub fn algorithms() -> Vec<Algorithm> {
    let mut all = Vec::new();
    loop {
        let mut info = ffi::comm_algorithm_info { size: std::mem::size_of::<ffi::comm_algorithm_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        if unsafe { ffi::comm_describe_algorithm(all.len(), &mut info) } != ffi::COMM_OK {
            return all;
        }
        all.push(Algorithm {
            collective: text_of(&info.collective),
            name: text_of(&info.name),
            help: text_of(&info.help),
            ranks: (info.ranks_min, info.ranks_max),
            bounded: info.bounded != 0,
            over_hosts: info.over_hosts != 0,
        });
    }
}
