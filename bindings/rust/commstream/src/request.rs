use std::time::Duration;

use commstream_sys as ffi;

use crate::handle::NONE;
use crate::inside;
use crate::lent::Output;
use crate::queue::Recording;
use crate::scope::State;
#[cfg(doc)]
use crate::Scope;
use crate::{nanoseconds, Communicator, Error, ErrorKind, Result};

/// A started operation of a [`Scope`]. Dropping it does not stop it; the scope waits for it.
#[must_use = "the scope waits for the operation at its end; wait for it here to use its output, or `let _ =` it"]
pub struct Request<'scope, O = ()> {
    pub(crate) state: &'scope State,
    pub(crate) place: Place,
    pub(crate) output: O,
}

/// Where a call is.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Among the open ones of its scope.
    Open(usize),
    Recorded(Recording),
}

impl<'scope, O: Output> Request<'scope, O> {
    /// Waits until the operation is complete, and makes progress on all others meanwhile. The operation's deadline ends the wait.
    ///
    /// [`ErrorKind::State`] if it was only recorded: wait for its plan or group; and inside a callback, unless it has succeeded.
    pub fn wait(self) -> Result<O::Value> {
        let (result, _written) = self.state.finish_one(self.place()?);
        result.map_err(|error| self.output.explain(error))?;
        Ok(self.output.value())
    }

    /// The output of a call that was recorded in a plan, for a later call of the same plan. Each start does the calls that use the same
    /// memory one after the other, in the order in which they were recorded.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Op};
    ///
    /// let world = Communicator::open()?;
    /// let blocks = vec![1.0; 100 * world.size() as usize];
    /// let mut plan = world.plan(blocks, |s, recorder, blocks| {
    ///     let blocks = s.reduce_scatter_in_place(recorder, blocks, Op::Sum)?.again()?;
    ///     s.allgather_in_place(recorder, blocks).map(drop)
    /// })?;
    /// plan.start()?;
    /// assert_eq!(plan.buffers()?[99], f64::from(world.size()));
    /// # Ok(()) }
    /// ```
    ///
    /// It can also be read and written while the plan is recorded, since nothing runs yet. [`ErrorKind::State`] if the call was started, or
    /// recorded in a group, whose calls have no order.
    pub fn again(self) -> Result<O::Buffer> {
        match self.place {
            Place::Recorded(Recording::Plan) => Ok(self.output.buffer()),
            _ => Err(Error::new(ErrorKind::State, "again: the call was not recorded in a plan; wait for it to have its output")),
        }
    }
}

impl<O> Request<'_, O> {
    fn place(&self) -> Result<usize> {
        match self.place {
            Place::Open(place) => Ok(place),
            Place::Recorded(_) => Err(Error::new(ErrorKind::State, "this call was only recorded; wait for its plan or group")),
        }
    }

    /// [`NONE`]: it has ended, and was waited for.
    pub(crate) fn raw(&self) -> Result<ffi::comm_request> {
        Ok(self.state.raw(self.place()?).unwrap_or(NONE))
    }

    /// Whether the operation has ended, also with an error, which [`Request::wait`] returns. Makes progress if it has not.
    pub fn is_complete(&self) -> Result<bool> {
        self.wait_for(Duration::ZERO)
    }

    /// Waits for a limited time; then as [`Request::is_complete`]. The operation goes on.
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        let request = self.raw()?;
        let timeout = if inside::may_wait().is_ok() { nanoseconds(timeout) } else { 0 };
        // SAFETY: a request may be waited for at any time.
        Ok(timeout == 0 && unsafe { ffi::comm_test(request) } != ffi::COMM_PENDING
            || timeout > 0 && unsafe { ffi::comm_wait(request, timeout) } != ffi::COMM_PENDING)
    }

    /// Cancels a receive that has matched nothing: its `wait` then returns [`ErrorKind::Cancelled`]. Any other operation goes on, and this
    /// returns [`ErrorKind::State`].
    pub fn cancel(&self) -> Result<()> {
        let request = self.raw()?;
        if request.comm.is_null() {
            return Err(Error::new(ErrorKind::State, "cancel: the operation has ended"));
        }
        // SAFETY: a request may be cancelled at any time.
        match unsafe { ffi::comm_cancel(request) } {
            ffi::COMM_OK => Ok(()),
            result => Err(Error::plain(result)),
        }
    }

    /// Lets everything issued on `c` afterwards start only when this operation is complete. Returns at once. `c` may be another
    /// communicator of the same world.
    pub fn before(&self, c: &Communicator) -> Result<()> {
        let request = self.raw()?;
        // SAFETY: the handle is open.
        c.handle.ask(|c| unsafe { ffi::comm_queue_wait_request(c, request) })
    }
}

/// Waits until one of the requests has ended, also with an error, which its [`Request::wait`] returns, and says which. `None`: `timeout`
/// passed first, or there are none.
///
/// A request whose `wait` follows is removed from the list, so that the next call finds another one:
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{wait_any, Communicator, FOREVER};
///
/// let world = Communicator::open()?;
/// let mut buffers = [[0u8; 100]; 3];
/// commstream::scope(|s| {
///     let started = buffers.iter_mut().map(|buffer| s.broadcast(&world, buffer, 0));
///     let mut requests = started.collect::<commstream::Result<Vec<_>>>()?;
///     while let Some(i) = wait_any(&requests, FOREVER)? {
///         let buffer = requests.swap_remove(i).wait()?;
///         assert_eq!(buffer.len(), 100);
///     }
///     Ok(())
/// })
/// # }
/// ```
pub fn wait_any<O>(requests: &[Request<'_, O>], timeout: Duration) -> Result<Option<usize>> {
    let mut raw = requests.iter().map(Request::raw).collect::<Result<Vec<_>>>()?;
    if let Some(ended) = raw.iter().position(|request| request.comm.is_null()) {
        return Ok(Some(ended));
    }
    let timeout = if inside::may_wait().is_ok() { nanoseconds(timeout) } else { 0 };
    let mut index = usize::MAX;
    // SAFETY: there are so many, and requests may be waited for at any time. Results are left to their requests.
    let _ = unsafe { ffi::comm_wait_any(raw.as_mut_ptr(), raw.len(), timeout, &mut index) };
    Ok(Some(index).filter(|index| *index < raw.len()))
}
