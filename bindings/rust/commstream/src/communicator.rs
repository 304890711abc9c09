use std::os::raw::c_char;
use std::sync::Arc;
use std::time::Duration;

use commstream_sys as ffi;

use crate::error::text_of;
use crate::handle::{as_call, Handle};
use crate::inside;
use crate::{nanoseconds, Config, Error, ErrorKind, Result};

/// A communicator: some ranks of a world, with a queue of operations of their own.
///
/// A clone is the same communicator. It is closed when the last clone is dropped, or by [`Communicator::close`]. The collective methods
/// wait for their result; those of a [`Scope`](crate::Scope) return at once. Every rank makes the same collective calls in the same order,
/// from one thread at a time for each communicator. Any thread may call anything.
#[derive(Clone)]
pub struct Communicator {
    pub(crate) handle: Arc<Handle>,
}

/// What a receive got, or what a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The sending rank.
    pub peer: i32,
    /// The tag of the message.
    pub tag: u32,
    /// The length of the message in bytes.
    pub bytes: usize,
}

impl Status {
    pub(crate) fn of(status: ffi::comm_status) -> Status {
        Status { peer: status.peer, tag: status.tag, bytes: status.bytes as usize }
    }

    /// The length of the message in elements of `T`.
    pub fn count<T>(&self) -> usize {
        self.bytes.checked_div(std::mem::size_of::<T>()).unwrap_or(0)
    }
}

/// What [`Communicator::split_place`] brings together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Place {
    /// Ranks of one host.
    Node = ffi::COMM_PLACE_NODE,
    /// Ranks of one NUMA node; the calling thread must be bound to the CPUs of one.
    Numa = ffi::COMM_PLACE_NUMA,
    /// Ranks of one device.
    Device = ffi::COMM_PLACE_DEVICE,
}

/// What [`Communicator::info`] says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The name of the backend, such as "shm+tcp".
    pub backend: String,
    /// What started the ranks.
    pub launcher: String,
    /// The name of this host.
    pub host: String,
    /// The number of this host, and of all hosts.
    pub node: (i32, i32),
    /// The rank on this host, and the number of ranks there.
    pub local_rank: (i32, i32),
    /// The version of the library, and its kernels.
    pub library: String,
    /// The name that [`DuplicateOptions::name`](crate::DuplicateOptions::name) gave it.
    pub name: String,
    /// The id of the Slurm job; empty: none.
    pub slurm_job: String,
    /// The CPUs that this process may use.
    pub cpus: i32,
    /// Whether every host has the same number of ranks.
    pub homogeneous: bool,
    /// Whether buffers may be memory of a device.
    pub device_buffers: bool,
    /// Whether it works on a CUDA stream, so that other streams wait for it without the host.
    pub stream_wait: bool,
    /// Whether what is issued while its stream is captured goes into the CUDA graph.
    pub graph_capture: bool,
    /// Whether reductions have a fixed order of operands.
    pub fixed_order: bool,
    /// Whether the weaker ordering rules of nccl hold, part 8 of docs/reference/contract.md.
    pub device_order: bool,
    /// The operations that its queue can hold; a call that finds it full returns [`ErrorKind::Full`].
    pub queue_max: u64,
    /// The operations that can run at the same time.
    pub window: u64,
    /// The longest piece that the backend sends inline, in bytes.
    pub inline_bytes: u64,
    /// The memory of its queue and records, without the backend's.
    pub memory_bytes: u64,
}

impl Communicator {
    fn new(raw: *mut ffi::comm_communicator) -> Communicator {
        Communicator { handle: Arc::new(Handle::new(raw)) }
    }

    /// Opens the world of this job, as the launcher's environment describes it; without a launcher, a world of one rank.
    ///
    /// Collective; it waits until all ranks have come, at most a minute.
    pub fn open() -> Result<Communicator> {
        Config::new().open()
    }

    pub(crate) fn open_with(config: &mut ffi::comm_config) -> Result<Communicator> {
        inside::may_start()?;
        let mut text = [0 as c_char; 512];
        let mut raw = std::ptr::null_mut();
        config.error_text = text.as_mut_ptr();
        config.error_text_bytes = text.len();
        // SAFETY: everything that the structure points to lives until the call returns, and the library copies it.
        match unsafe { ffi::comm_open(config, &mut raw) } {
            ffi::COMM_OK => Ok(Communicator::new(raw)),
            result => Err(opening(result, &text)),
        }
    }

    /// `devices`: the device of each rank, or NULL.
    pub(crate) fn open_ranks(config: &mut ffi::comm_config, ranks: i32, devices: *const *const c_char) -> Result<Vec<Communicator>> {
        inside::may_start()?;
        let mut text = [0 as c_char; 512];
        let mut raw = vec![std::ptr::null_mut(); usize::try_from(ranks).unwrap_or(0).max(1)];
        config.error_text = text.as_mut_ptr();
        config.error_text_bytes = text.len();
        // SAFETY: as in open_with; there is room for all ranks, and the library refuses a number below 1.
        match unsafe { ffi::comm_open_local(config, ranks, devices, raw.as_mut_ptr()) } {
            ffi::COMM_OK => Ok(raw.into_iter().map(Communicator::new).collect()),
            result => Err(opening(result, &text)),
        }
    }

    /// This rank, 0 to `size() - 1`.
    pub fn rank(&self) -> i32 {
        // SAFETY: the handle is open or closed; a closed one has no rank.
        unsafe { ffi::comm_rank(self.handle.raw()) }
    }

    /// The number of ranks.
    pub fn size(&self) -> i32 {
        // SAFETY: as for rank.
        unsafe { ffi::comm_size(self.handle.raw()) }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.size().max(1) as usize
    }

    /// The rank that `rank` of this communicator has in `other`, if it is a member.
    pub fn translate(&self, rank: i32, other: &Communicator) -> Option<i32> {
        // SAFETY: as for rank.
        Some(unsafe { ffi::comm_translate(self.handle.raw(), rank, other.handle.raw()) }).filter(|rank| *rank >= 0)
    }

    /// What is known about this communicator.
    pub fn info(&self) -> Result<Info> {
        let mut info = ffi::comm_info { size: std::mem::size_of::<ffi::comm_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        self.handle.ask(|c| unsafe { ffi::comm_describe(c, &mut info) })?;
        Ok(Info {
            backend: text_of(&info.backend),
            launcher: text_of(&info.launcher),
            host: text_of(&info.host),
            node: (info.node, info.nodes),
            local_rank: (info.local_rank, info.local_ranks),
            library: text_of(&info.library),
            name: text_of(&info.name),
            slurm_job: text_of(&info.slurm_job),
            cpus: info.cpus,
            homogeneous: info.homogeneous != 0,
            device_buffers: info.device_buffers != 0,
            stream_wait: info.stream_wait != 0,
            graph_capture: info.graph_capture != 0,
            fixed_order: info.fixed_order != 0,
            device_order: info.device_order != 0,
            queue_max: info.queue_max,
            window: info.window,
            inline_bytes: info.inline_bytes,
            memory_bytes: info.memory_bytes,
        })
    }

    /// Closes the communicator: waits for its operations, at most for `timeout`, and frees it. Communicators made from it stay open.
    ///
    /// [`ErrorKind::State`] if there is another clone of it, or a plan, window, event or task that uses it; the communicator is then
    /// closed when the last of these is dropped. [`ErrorKind::Timeout`] if work was left unfinished, which has ended with
    /// [`ErrorKind::Closed`].
    pub fn close(self, timeout: Duration) -> Result<()> {
        inside::may_wait()?; // otherwise a thread of its own closes it
        match Arc::try_unwrap(self.handle) {
            Ok(handle) => handle.close(nanoseconds(timeout)),
            Err(_) => Err(Error::new(ErrorKind::State, "close: another clone, plan, window, event or task uses this communicator")),
        }
    }

    /// Fails every communicator of this world with [`ErrorKind::Aborted`], on all ranks. `code` is found in the text of their errors.
    pub fn abort(&self, code: i32) -> Result<()> {
        // SAFETY: as for rank.
        self.handle.ask(|c| unsafe { ffi::comm_abort(c, code) })
    }

    /// Fails this communicator on every rank with [`ErrorKind::Revoked`], so that ranks that wait in it return and can recover.
    pub fn revoke(&self) -> Result<()> {
        // SAFETY: as for rank.
        self.handle.ask(|c| unsafe { ffi::comm_revoke(c) })
    }

    /// Makes a communicator of the ranks that are still alive. Collective over them; works on a failed or revoked communicator.
    ///
    /// With backends mpi and nccl it may be [`ErrorKind::Closed`]: they cannot cancel, so a wait for an operation that failed while they had
    /// its buffers closes its communicator. Shrink a duplicate on which nothing ran.
    pub fn shrink(&self) -> Result<Communicator> {
        let mut raw = std::ptr::null_mut();
        let into: *mut *mut ffi::comm_communicator = &mut raw;
        self.handle.run(as_call(move |c, request| unsafe { ffi::comm_shrink(c, into, request) }))?;
        Ok(Communicator::new(raw))
    }

    /// Returns the bitwise AND of the flags of all surviving ranks: the same on each, also if ranks die meanwhile. Collective over them;
    /// works on a failed or revoked communicator.
    pub fn agree(&self, flags: u64) -> Result<u64> {
        let mut flags = flags;
        let at: *mut u64 = &mut flags;
        self.handle.run(as_call(move |c, request| unsafe { ffi::comm_agree(c, at, request) }))?;
        Ok(flags)
    }

    pub(crate) fn make(
        &self,
        call: impl FnOnce(*mut ffi::comm_communicator, *mut *mut ffi::comm_communicator, *mut ffi::comm_request) -> ffi::comm_result,
    ) -> Result<Option<Communicator>> {
        let mut raw = std::ptr::null_mut();
        let into: *mut *mut ffi::comm_communicator = &mut raw;
        self.handle.run(as_call(move |c, request| call(c, into, request)))?;
        Ok(Some(raw).filter(|raw| !raw.is_null()).map(Communicator::new))
    }

    /// Splits: the ranks of each color form a communicator, ordered by key, then by rank. Collective. `None` as the color: this rank takes
    /// part and gets none.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Communicator>> {
        self.make(|c, out, request| unsafe { ffi::comm_split(c, color.unwrap_or(ffi::COMM_NO_COLOR), key, out, request) })
    }

    /// Splits by where ranks run. Collective.
    pub fn split_place(&self, place: Place) -> Result<Communicator> {
        self.make(|c, out, request| unsafe { ffi::comm_split_place(c, place as ffi::comm_place, out, request) }).map(one)
    }

    /// Views the ranks as a mesh, of which the last axis changes fastest, and makes a communicator for each axis: of the ranks that differ
    /// from this one in that coordinate only. The product of the lengths is the number of ranks. Collective.
    ///
    /// ```no_run
    /// # fn main() -> commstream::Result<()> {
    /// let world = commstream::Communicator::open()?; // 8 ranks
    /// let axes = world.split_mesh(&[2, 4])?;
    /// let (data, tensor) = (&axes[0], &axes[1]);
    /// assert_eq!((data.size(), tensor.size()), (2, 4));
    /// # Ok(()) }
    /// ```
    pub fn split_mesh(&self, shape: &[i32]) -> Result<Vec<Communicator>> {
        let mut raw = vec![std::ptr::null_mut(); shape.len().max(1)];
        let into = raw.as_mut_ptr();
        let made = as_call(move |c, request| unsafe { ffi::comm_split_mesh(c, shape.as_ptr(), shape.len(), into, request) });
        inside::may_wait()?; // as Handle::run
        let request = self.handle.start(made)?;
        let finished = self.handle.finish(request);
        if finished.is_err() || raw.iter().any(|axis| axis.is_null()) {
            raw.into_iter().filter(|axis| !axis.is_null()).map(Communicator::new).for_each(drop);
            finished?;
            self.sync()?; // says why
            return Err(Error::new(ErrorKind::State, "split_mesh: an axis has no communicator"));
        }
        Ok(raw.into_iter().map(Communicator::new).collect())
    }

    /// Makes a communicator of some ranks, in this order. Only they call it, with the same list and tag.
    pub fn subset(&self, ranks: &[i32], tag: u32) -> Result<Communicator> {
        self.make(|c, out, request| unsafe { ffi::comm_subset(c, ranks.as_ptr(), ranks.len(), tag, out, request) }).map(one)
    }

    /// Waits until everything that was issued on this communicator is complete, and returns the first error that nobody was told.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: as for rank.
        self.handle.ask(|c| unsafe { ffi::comm_sync(c, ffi::COMM_FOREVER) })
    }

    /// As [`Communicator::sync`], for all communicators of this world, and of worlds that joined it ([`Config::engine_of`]).
    pub fn sync_all(&self) -> Result<()> {
        // SAFETY: as for rank.
        self.handle.ask(|c| unsafe { ffi::comm_sync_all(c, ffi::COMM_FOREVER) })
    }

    /// Moves what can move, on all communicators of this world, without waiting. `true`: there is more to do now; call again.
    pub fn progress(&self) -> Result<bool> {
        // SAFETY: as for rank.
        self.handle.ask_pending(|c| unsafe { ffi::comm_progress(c) }).map(|ended| !ended)
    }

    /// A descriptor for event loops. Call [`Communicator::progress`] until it returns `false`, then [`Communicator::arm`], look at your
    /// requests once more, and wait for the descriptor to become readable only if `arm` returned `true`. It belongs to the library.
    pub fn descriptor(&self) -> Result<std::os::unix::io::RawFd> {
        let mut fd = -1;
        // SAFETY: as for rank.
        self.handle.ask(|c| unsafe { ffi::comm_fd(c, &mut fd) })?;
        Ok(fd)
    }

    /// Asks for the descriptor to become readable at the next event. `false`: there is work; call [`Communicator::progress`] instead.
    pub fn arm(&self) -> Result<bool> {
        // SAFETY: as for rank.
        self.handle.ask_pending(|c| unsafe { ffi::comm_arm(c) })
    }

    /// Waits for a message that such a receive would match, and leaves it. `None`: `timeout` has passed.
    pub fn probe(&self, peer: Option<i32>, tag: Option<u32>, timeout: Duration) -> Result<Option<Status>> {
        let mut status = ffi::comm_status::default();
        let (peer, tag) = (peer.unwrap_or(ffi::COMM_ANY_PEER), tag.unwrap_or(ffi::COMM_ANY_TAG));
        // SAFETY: the status is there, and the call waits.
        let found = self.handle.ask_pending(|c| unsafe { ffi::comm_probe(c, peer, tag, nanoseconds(timeout), &mut status) })?;
        Ok(found.then(|| Status::of(status)))
    }
}

pub(crate) fn one(made: Option<Communicator>) -> Communicator {
    made.expect("the call gives a communicator or an error")
}

fn opening(result: ffi::comm_result, text: &[c_char]) -> Error {
    let said = text_of(text);
    if said.is_empty() {
        Error::plain(result)
    } else {
        Error::new(ErrorKind::of(result), said)
    }
}
