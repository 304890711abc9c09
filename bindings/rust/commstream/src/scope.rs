use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

use commstream_sys as ffi;

use crate::handle::{Call, Handle, NONE};
use crate::inside;
use crate::lent::{Kept, Written};
use crate::operator::{How, Watched};
use crate::queue::{Queue, Recorder, Recording, Taken};
use crate::request::{Place, Request};
#[cfg(doc)]
use crate::ErrorKind;
use crate::{Communicator, Element, Reduce, Result};

/// Calls that return at once, with buffers that they borrow. See [`scope()`].
///
/// Each method starts the operation and returns its [`Request`]. What each does, and what its buffers must be, is said at the blocking
/// method of the same name of [`Communicator`]. Inputs are borrowed until the scope ends. An output comes back from [`Request::wait`].
pub struct Scope<'scope, 'env: 'scope> {
    pub(crate) state: State,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A request that nobody has waited for yet.
pub(crate) struct Open {
    handle: Arc<Handle>,
    request: ffi::comm_request,
    _written: Option<Kept<Written>>, // what it writes beside its buffer
}

/// Runs `body`, in which operations may borrow what outlives the scope, and then waits for all of them.
///
/// So the buffers of an operation cannot be used while it runs, and are free when `scope` returns. If `body` returns an error or panics,
/// receives that have matched nothing are cancelled; all else is waited for, at most until its deadline. The result is the error of
/// `body`, or of the first operation that failed and was not waited for. Inside a callback, where nothing may wait, it is
/// [`ErrorKind::State`], and `body` does not run.
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
    inside::may_wait()?;
    let scope = Scope::new();
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    if !matches!(result, Ok(Ok(_))) {
        scope.cancel();
    }
    let finished = scope.finish();
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    finished.map(|()| value)
}

/// What a scope has: the operations that it waits for, and what they use beside the buffers.
#[derive(Default)]
pub(crate) struct State {
    open: RefCell<Vec<Option<Open>>>,
    free: RefCell<Vec<usize>>, // places whose request was waited for
    kept: RefCell<Keeps>,
}

/// What operations that were recorded use beside their buffers, and all operators. A plan has it after its scope.
#[derive(Default)]
pub(crate) struct Keeps {
    planned: Vec<Kept<Written>>,
    grouped: Vec<Kept<Written>>,
    operators: Vec<Arc<dyn Watched>>,
}

impl Keeps {
    /// The result of an operation, or the panic of an operator that it may have used: that failed the whole world.
    pub(crate) fn checked(&self, result: Result<()>) -> Result<()> {
        self.operators.iter().find_map(|operator| operator.failed()).map_or(result, Err)
    }

    /// The receives of a plan, in the order in which they were recorded.
    pub(crate) fn receives(&self) -> &[Kept<Written>] {
        &self.planned
    }
}

impl State {
    /// Waits for one operation, which has ended then, and gives what it had. [`ErrorKind::State`] inside a callback while it goes on. Its
    /// place is used again.
    pub(crate) fn finish_one(&self, place: usize) -> (Result<()>, Option<Open>) {
        if !self.raw(place).map_or(true, inside::may_finish) {
            return (inside::may_wait(), None);
        }
        let open = self.open.borrow_mut()[place].take();
        self.free.borrow_mut().push(place);
        let result = open.as_ref().map_or(Ok(()), |open| open.handle.finish(open.request));
        (self.kept.borrow().checked(result), open)
    }

    /// None: it has ended, and was waited for.
    pub(crate) fn raw(&self, place: usize) -> Option<ffi::comm_request> {
        self.open.borrow()[place].as_ref().map(|open| open.request)
    }

    fn note(&self, handle: &Arc<Handle>, request: ffi::comm_request, written: Option<Kept<Written>>) -> usize {
        let (mut all, one) = (self.open.borrow_mut(), Some(Open { handle: Arc::clone(handle), request, _written: written }));
        if let Some(place) = self.free.borrow_mut().pop() {
            all[place] = one;
            return place;
        }
        all.push(one);
        all.len() - 1
    }

    pub(crate) fn keep_operator(&self, operator: Option<Arc<dyn Watched>>) {
        let mut kept = self.kept.borrow_mut();
        if let Some(operator) = operator.filter(|operator| kept.operators.iter().all(|other| !std::ptr::eq(other.id(), operator.id()))) {
            kept.operators.push(operator);
        }
    }
}

impl Scope<'_, '_> {
    pub(crate) fn new() -> Self {
        Scope { state: State::default(), scope: PhantomData, env: PhantomData }
    }

    /// Whether `finish` gives the buffers back.
    pub(crate) fn may_finish(&self) -> bool {
        inside::may_wait().is_ok() || self.state.open.borrow().iter().flatten().all(|open| inside::may_finish(open.request))
    }

    /// Waits for everything that is still open, and returns the first error. Afterwards nobody uses the buffers.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut first = Ok(());
        for open in self.state.open.take().into_iter().flatten() {
            let result = open.handle.finish(open.request);
            first = first.and(result);
        }
        self.state.kept.borrow().checked(first)
    }

    /// What operations that were recorded use.
    pub(crate) fn into_kept(self) -> Keeps {
        self.state.kept.into_inner()
    }

    /// Lets another thread wait for what is open: here, inside a callback, nothing can. The buffers must stay for ever.
    pub(crate) fn finish_elsewhere(&self) {
        let rest = Rest { open: self.state.open.take(), kept: self.state.kept.take() };
        inside::elsewhere(move || rest.finish());
    }

    /// The requests of everything that is open.
    pub(crate) fn requests(&self) -> Vec<ffi::comm_request> {
        self.state.open.borrow().iter().flatten().map(|open| open.request).collect()
    }

    /// Cancels receives that have matched nothing: the program will not make the call that they wait for.
    pub(crate) fn cancel(&self) {
        for request in self.requests() {
            // SAFETY: a request may be cancelled at any time; what cannot be cancelled goes on.
            let _ = unsafe { ffi::comm_cancel(request) };
        }
    }

    /// Whether everything has ended. `finish` has the errors.
    pub(crate) fn test(&self) -> bool {
        for slot in self.state.open.borrow_mut().iter_mut() {
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

/// What another thread waits for.
struct Rest {
    open: Vec<Option<Open>>,
    kept: Keeps,
}

// SAFETY: any thread may wait for requests. What operations write is not read.
unsafe impl Send for Rest {}

impl Rest {
    /// As the drop of a task does.
    fn finish(self) {
        for open in self.open.iter().flatten() {
            // SAFETY: as in `Scope::cancel`.
            let _ = unsafe { ffi::comm_cancel(open.request) };
        }
        for open in self.open.into_iter().flatten() {
            let _ = open.handle.finish(open.request);
        }
        drop(self.kept);
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts or records a call. The scope has the buffers that `call` names, and waits for the request.
    pub(crate) fn begin<O>(&'scope self, queue: &impl Queue, call: impl Call, output: O) -> Result<Request<'scope, O>> {
        self.begin_writing(queue, call, output, None)
    }

    /// The same for a call that also writes elsewhere.
    pub(crate) fn begin_writing<O>(
        &'scope self,
        queue: &impl Queue,
        call: impl Call,
        output: O,
        written: Option<Kept<Written>>,
    ) -> Result<Request<'scope, O>> {
        self.state.open.borrow_mut().reserve(1); // so that nothing fails between the start and the note of it
        let place = match queue.take(self.mark(), call)? {
            Taken::Started(request) => Place::Open(self.state.note(queue.handle(), request, written)),
            Taken::Recorded(recording) => {
                let mut kept = self.state.kept.borrow_mut();
                let list = if recording == Recording::Plan { &mut kept.planned } else { &mut kept.grouped };
                list.extend(written);
                Place::Recorded(recording)
            }
        };
        Ok(Request { state: &self.state, place, output })
    }

    /// The same for a reduction.
    pub(crate) fn begin_with<T: Element, C: Call, O>(
        &'scope self,
        queue: &impl Queue,
        op: impl Reduce<T>,
        call: impl FnOnce(How) -> C,
        output: O,
    ) -> Result<Request<'scope, O>> {
        let (how, operator) = op.how(queue.handle())?;
        self.state.keep_operator(operator);
        self.begin(queue, call(how), output)
    }

    /// Tells this scope from others.
    pub(crate) fn mark(&self) -> *const () {
        (self as *const Self).cast()
    }

    /// Runs `record`, which makes calls of this scope on the recorder that it is given, and starts them as one batch without an order
    /// between them. Small allreduces become one exchange. The request completes with all of them, and has the first error among them. If
    /// `record` returns an error, nothing is started, on any rank.
    pub fn group(&'scope self, c: &Communicator, record: impl FnOnce(&Recorder) -> Result<()>) -> Result<Request<'scope>> {
        inside::may_start()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open.
        c.handle.ask(|c| unsafe { ffi::comm_group_begin(c, &mut raw) })?;
        self.state.open.borrow_mut().reserve(1);
        let recorded = Recorder::record(c, raw, Recording::Group, self.mark(), record);
        let mut request = NONE;
        // SAFETY: the recorder is consumed here. The scope has the buffers, and waits for the request.
        let ended = c.handle.check(unsafe { ffi::comm_group_end(raw, &mut request) });
        let place = Place::Open(self.state.note(&c.handle, request, None));
        recorded.unwrap_or_else(|panic| resume_unwind(panic)).and(ended)?;
        Ok(Request { state: &self.state, place, output: () })
    }
}
