use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use commstream_sys as ffi;

use crate::calls::{self, Layout};
use crate::handle::{Call, Handle, NONE};
use crate::lent::{Kept, Lent, Output, Received};
use crate::queue::{Queue, Recorder};
use crate::{nanoseconds, Communicator, Element, Error, ErrorKind, Op, Result};

/// Calls that return at once, with buffers that they borrow. See [`scope()`].
///
/// Each method starts the operation and returns its [`Request`]. What each does, and what its buffers must be, is said at the blocking
/// method of the same name of [`Communicator`]. Inputs are borrowed until the scope ends. An output comes back from [`Request::wait`].
pub struct Scope<'scope, 'env: 'scope> {
    open: RefCell<Vec<Option<Open>>>,
    statuses: RefCell<Vec<Kept<ffi::comm_status>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A request that nobody has waited for yet.
struct Open {
    handle: Arc<Handle>,
    request: ffi::comm_request,
}

/// Runs `body`, in which operations may borrow what outlives the scope, and then waits for all of them.
///
/// So the buffers of an operation cannot be used while it runs, and are free when `scope` returns. If `body` returns an error or panics,
/// receives that have matched nothing are cancelled; all else is waited for, at most until its deadline. The result is the error of
/// `body`, or of the first operation that failed and was not waited for.
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{Communicator, Op};
///
/// let world = Communicator::open()?;
/// let (gradient, mut sum) = (vec![1.0f32; 1000], vec![0.0f32; 1000]);
/// let mut loss = 0.0;
/// commstream::scope(|s| {
///     let request = s.allreduce(&world, &gradient, &mut sum, Op::Sum)?;
///     loss = gradient.iter().map(|g| g * g).sum(); // meanwhile; sum cannot be used here
///     let sum = request.wait()?;
///     sum[0] *= 0.5;
///     Ok(())
/// })?;
/// assert_eq!(sum[1], world.size() as f32);
/// # Ok(()) }
/// ```
///
/// An output that is still being written cannot be read:
///
/// ```compile_fail
/// # fn main() -> commstream::Result<()> {
/// # let world = commstream::Communicator::open()?;
/// # let (gradient, mut sum) = (vec![1.0f32; 1000], vec![0.0f32; 1000]);
/// commstream::scope(|s| {
///     let request = s.allreduce(&world, &gradient, &mut sum, commstream::Op::Sum)?;
///     println!("{}", sum[0]); // error: it is borrowed
///     request.wait()?;
///     Ok(())
/// })
/// # }
/// ```
///
/// Nor can a buffer be dropped before the scope ends:
///
/// ```compile_fail
/// # fn main() -> commstream::Result<()> {
/// # let world = commstream::Communicator::open()?;
/// commstream::scope(|s| {
///     let mut buffer = vec![0u8; 8];
///     s.broadcast(&world, &mut buffer, 0)?; // error: buffer does not live long enough
///     Ok(())
/// })
/// # }
/// ```
pub fn scope<'env, R>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>) -> Result<R> {
    let scope = Scope::new();
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    if !matches!(result, Ok(Ok(_))) {
        scope.cancel();
    }
    let finished = scope.finish();
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    finished.map(|()| value)
}

impl Scope<'_, '_> {
    pub(crate) fn new() -> Self {
        Scope { open: RefCell::new(Vec::new()), statuses: RefCell::new(Vec::new()), scope: PhantomData, env: PhantomData }
    }

    /// Waits for everything that is still open, and returns the first error. Afterwards nobody uses the buffers.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut first = Ok(());
        for open in self.open.take().into_iter().flatten() {
            let result = open.handle.finish(open.request);
            first = first.and(result);
        }
        first
    }

    /// Where receives that were recorded put their status.
    pub(crate) fn into_statuses(self) -> Vec<Kept<ffi::comm_status>> {
        self.statuses.into_inner()
    }

    /// Cancels receives that have matched nothing: the program will not make the call that they wait for.
    pub(crate) fn cancel(&self) {
        for open in self.open.borrow().iter().flatten() {
            // SAFETY: a request may be cancelled at any time; what cannot be cancelled goes on.
            let _ = unsafe { ffi::comm_cancel(open.request) };
        }
    }

    /// Whether everything has ended. `finish` has the errors.
    pub(crate) fn test(&self) -> bool {
        for slot in self.open.borrow_mut().iter_mut() {
            if let Some(open) = slot {
                // SAFETY: a request may be tested at any time.
                match unsafe { ffi::comm_test(open.request) } {
                    ffi::COMM_PENDING => return false,
                    ffi::COMM_OK => *slot = None,
                    _ => {} // `finish` has its error
                }
            }
        }
        true
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts or records a call. The scope has the buffers that `call` names, and waits for the request.
    pub(crate) fn begin<O>(&'scope self, queue: &impl Queue, call: impl Call, output: O) -> Result<Request<'scope, O>> {
        self.open.borrow_mut().reserve(1); // so that nothing fails between the start and the note of it
        let place = queue.take(self.mark(), call)?.map(|request| self.note(queue.handle(), request));
        Ok(Request { open: &self.open, place, output })
    }

    /// Tells this scope from others.
    pub(crate) fn mark(&self) -> *const () {
        (self as *const Self).cast()
    }

    fn note(&self, handle: &Arc<Handle>, request: ffi::comm_request) -> usize {
        let mut open = self.open.borrow_mut();
        open.push(Some(Open { handle: Arc::clone(handle), request }));
        open.len() - 1
    }

    /// Starts [`Communicator::barrier`].
    pub fn barrier(&'scope self, c: &impl Queue) -> Result<Request<'scope>> {
        self.begin(c, calls::barrier(), ())
    }

    /// Starts [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut buffer = Lent::new(buffer);
        let call = calls::broadcast(buffer.slice(), root);
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::allreduce`].
    pub fn allreduce<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::allreduce(input, output.slice(), op)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::allreduce_in_place`].
    pub fn allreduce_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut buffer = Lent::new(buffer);
        let call = calls::allreduce_in_place(buffer.slice(), op);
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::reduce`].
    pub fn reduce<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<&'scope mut [T]>,
        op: Op,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let mut output = output.map(Lent::new);
        let call = calls::reduce(c.rank(), input, output.as_mut().map(Lent::slice), op, root)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::scan`].
    pub fn scan<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::scan(input, output.slice(), op, false)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::exscan`].
    pub fn exscan<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::scan(input, output.slice(), op, true)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::reduce_scatter(c.ranks(), input, output.slice(), op)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::reduce_scatter_v`].
    pub fn reduce_scatter_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        counts: &[usize],
        op: Op,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::reduce_scatter_v(c.rank(), c.ranks(), input, output.slice(), counts, op)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::gather`].
    pub fn gather<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<&'scope mut [T]>,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let mut output = output.map(Lent::new);
        let call = calls::gather(c.rank(), c.ranks(), input, output.as_mut().map(Lent::slice), root)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::gather_v`].
    pub fn gather_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<(&'scope mut [T], Layout<'_>)>,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let (mut buffer, layout) = output.map_or((None, None), |(buffer, layout)| (Some(Lent::new(buffer)), Some(layout)));
        let call = calls::gather_v(c.rank(), c.ranks(), input, buffer.as_mut().map(Lent::slice).zip(layout), root)?;
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: Option<&'scope [T]>,
        output: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::scatter(c.rank(), c.ranks(), input, output.slice(), root)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::scatter_v`].
    pub fn scatter_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: Option<(&'scope [T], Layout<'_>)>,
        output: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::scatter_v(c.rank(), c.ranks(), input, output.slice(), root)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather`].
    pub fn allgather<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::allgather(c.ranks(), input, output.slice())?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather_v`].
    pub fn allgather_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        layout: Layout<'_>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::allgather_v(c.rank(), c.ranks(), input, output.slice(), layout)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall`].
    pub fn alltoall<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::alltoall(c.ranks(), input, output.slice())?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall_v`].
    pub fn alltoall_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        input_layout: Layout<'_>,
        output: &'scope mut [T],
        output_layout: Layout<'_>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let mut output = Lent::new(output);
        let call = calls::alltoall_v(c.ranks(), input, input_layout, output.slice(), output_layout)?;
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::send`].
    pub fn send<T: Element>(&'scope self, c: &impl Queue, buffer: &'scope [T], peer: i32, tag: u32) -> Result<Request<'scope>> {
        self.begin(c, calls::send(buffer, peer, tag), ())
    }

    /// Starts [`Communicator::receive`].
    pub fn receive<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        peer: Option<i32>,
        tag: Option<u32>,
    ) -> Result<Request<'scope, Received<'scope, T>>> {
        let status = Kept::new(ffi::comm_status::default());
        let at = status.at();
        self.statuses.borrow_mut().push(status); // for as long as the operation may write it
        let mut buffer = Lent::new(buffer);
        let call = calls::receive(buffer.slice(), peer, tag, at);
        self.begin(c, call, Received { buffer, status: at })
    }

    /// Runs `record`, which makes calls of this scope on the recorder that it is given, and starts them as one batch without an order
    /// between them. Small allreduces become one exchange. The request completes with all of them, and has the first error among them. If
    /// `record` returns an error, nothing is started, on any rank.
    pub fn group(&'scope self, c: &Communicator, record: impl FnOnce(&Recorder) -> Result<()>) -> Result<Request<'scope>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open.
        c.handle.check(unsafe { ffi::comm_group_begin(c.handle.raw(), &mut raw) })?;
        self.open.borrow_mut().reserve(1);
        let recorded = Recorder::record(c, raw, self.mark(), record);
        let mut request = NONE;
        // SAFETY: the recorder is consumed here. The scope has the buffers, and waits for the request.
        let ended = c.handle.check(unsafe { ffi::comm_group_end(raw, &mut request) });
        let place = Some(self.note(&c.handle, request));
        recorded.and(ended)?;
        Ok(Request { open: &self.open, place, output: () })
    }
}

/// A started operation of a [`Scope`]. Dropping it does not stop it; the scope waits for it.
#[must_use = "the scope waits for the operation at its end; wait for it here to use its output, or `let _ =` it"]
pub struct Request<'scope, O = ()> {
    open: &'scope RefCell<Vec<Option<Open>>>,
    place: Option<usize>, // None: it was recorded
    output: O,
}

impl<'scope, O: Output> Request<'scope, O> {
    /// Waits until the operation is complete, and makes progress on all others meanwhile. The operation's deadline ends the wait.
    ///
    /// [`ErrorKind::State`] if it was only recorded: wait for its plan or group.
    pub fn wait(self) -> Result<O::Value> {
        let place = self.place()?;
        let open = self.open.borrow_mut()[place].take();
        open.map_or(Ok(()), |open| open.handle.finish(open.request))?;
        Ok(self.output.value())
    }
}

impl<O> Request<'_, O> {
    fn place(&self) -> Result<usize> {
        self.place.ok_or_else(|| Error::new(ErrorKind::State, "this call was only recorded; wait for its plan or group"))
    }

    /// None: it has ended, and was waited for.
    fn raw(&self) -> Result<Option<ffi::comm_request>> {
        let place = self.place()?;
        Ok(self.open.borrow()[place].as_ref().map(|open| open.request))
    }

    /// Whether the operation has ended, also with an error, which [`Request::wait`] returns. Makes progress if it has not.
    pub fn is_complete(&self) -> Result<bool> {
        self.wait_for(Duration::ZERO)
    }

    /// Waits for a limited time; then as [`Request::is_complete`]. The operation goes on.
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        let request = self.raw()?.unwrap_or(NONE);
        // SAFETY: a request may be waited for at any time.
        Ok(unsafe { ffi::comm_wait(request, nanoseconds(timeout)) } != ffi::COMM_PENDING)
    }

    /// Cancels a receive that has matched nothing: its `wait` then returns [`ErrorKind::Cancelled`]. Any other operation goes on, and this
    /// returns [`ErrorKind::State`].
    pub fn cancel(&self) -> Result<()> {
        let request = self.raw()?.ok_or_else(|| Error::new(ErrorKind::State, "cancel: the operation has ended"))?;
        // SAFETY: a request may be cancelled at any time.
        match unsafe { ffi::comm_cancel(request) } {
            ffi::COMM_OK => Ok(()),
            result => Err(Error::plain(result)),
        }
    }

    /// Lets everything issued on `c` afterwards start only when this operation is complete. Returns at once. `c` may be another
    /// communicator of the same world.
    pub fn before(&self, c: &Communicator) -> Result<()> {
        let request = self.raw()?.unwrap_or(NONE);
        // SAFETY: the handle is open.
        c.handle.check(unsafe { ffi::comm_queue_wait_request(c.handle.raw(), request) })
    }
}
