use std::ffi::CString;
use std::time::Duration;

use commstream_sys as ffi;

use crate::communicator::one;
use crate::config::{text, Order};
use crate::{nanoseconds, Communicator, Result, Stream};

/// How [`Communicator::duplicate_as`] makes a communicator. What is not set is as in the one that is duplicated; communicators that are split
/// from the new one inherit it.
#[derive(Clone, Debug, Default)]
pub struct DuplicateOptions {
    name: Option<String>,
    priority: i32,
    order: Option<Order>,
    operation_timeout: Duration,
    stream: Option<Stream>,
    algorithms: Vec<String>,
}

impl DuplicateOptions {
    /// Nothing is set.
    pub fn new() -> DuplicateOptions {
        DuplicateOptions::default()
    }

    /// A name for traces and errors; 31 bytes of it are kept.
    pub fn name(mut self, name: &str) -> DuplicateOptions {
        self.name = Some(name.into());
        self
    }

    /// 1: moved before others; 0: normal; -1: moved when nothing else moves. Of this rank alone.
    pub fn priority(mut self, priority: i32) -> DuplicateOptions {
        self.priority = priority;
        self
    }

    /// The order of operands in reductions, the same on all ranks.
    pub fn order(mut self, order: Order) -> DuplicateOptions {
        self.order = Some(order);
        self
    }

    /// The deadline of each operation, on this rank.
    pub fn operation_timeout(mut self, timeout: Duration) -> DuplicateOptions {
        self.operation_timeout = timeout;
        self
    }

    /// A stream of the program's for the work on the device. With backends nccl and cuda only.
    pub fn stream(mut self, stream: Stream) -> DuplicateOptions {
        self.stream = Some(stream);
        self
    }

    /// An algorithm for a collective, the same on all ranks, such as `("allreduce", "slices")`: [`algorithms`](crate::algorithms) has the names.
    pub fn algorithm(mut self, collective: &str, name: &str) -> DuplicateOptions {
        self.algorithms.push(format!("{collective}:{name}"));
        self
    }
}

impl Communicator {
    /// Makes a communicator of the same ranks, with a queue of its own. Collective.
    pub fn duplicate(&self) -> Result<Communicator> {
        self.duplicate_as(&DuplicateOptions::new())
    }

    /// As [`Communicator::duplicate`], with a name for traces and errors, and a priority on this rank: 1 is moved before others, -1 when
    /// nothing else moves.
    pub fn duplicate_with(&self, name: &str, priority: i32) -> Result<Communicator> {
        self.duplicate_as(&DuplicateOptions::new().name(name).priority(priority))
    }

    /// As [`Communicator::duplicate`], with a stream of the program's for the work on the device. With backends nccl and cuda only.
    pub fn duplicate_on(&self, stream: Stream) -> Result<Communicator> {
        self.duplicate_as(&DuplicateOptions::new().stream(stream))
    }

    /// As [`Communicator::duplicate`], with everything that a communicator may have of its own.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, DuplicateOptions};
    /// use std::time::Duration;
    ///
    /// let world = Communicator::open()?;
    /// let hasty = DuplicateOptions::new().name("heartbeat").priority(1).operation_timeout(Duration::from_secs(5));
    /// let heartbeat = world.duplicate_as(&hasty)?;
    /// heartbeat.barrier()?;
    /// # Ok(()) }
    /// ```
    pub fn duplicate_as(&self, options: &DuplicateOptions) -> Result<Communicator> {
        let name = text("duplicate: name", options.name.as_deref().filter(|name| !name.is_empty()))?;
        let keys = Some(options.algorithms.join(",")).filter(|all| !all.is_empty()).map(|all| format!("algorithm={all}"));
        let keys = text("duplicate: algorithm", keys.as_deref())?;
        let at = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let options = ffi::comm_options {
            size: std::mem::size_of::<ffi::comm_options>(),
            name: at(&name),
            priority: options.priority,
            order: options.order.map_or(ffi::COMM_ORDER_DEFAULT, |order| order as ffi::comm_order),
            operation_timeout_ns: nanoseconds(options.operation_timeout),
            stream: options.stream.map_or(std::ptr::null_mut(), Stream::raw),
            options: at(&keys),
        };
        self.make(|c, out, request| unsafe { ffi::comm_dup(c, &options, out, request) }).map(one)
    }
}
