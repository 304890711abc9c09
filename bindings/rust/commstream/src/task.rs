use std::panic::resume_unwind;
use std::sync::atomic::AtomicPtr;

use commstream_sys as ffi;

use crate::buffers::Buffers;
use crate::handle::as_call;
use crate::inside;
use crate::lent::Kept;
use crate::queue::{Recorder, Recording};
use crate::scope::{Keeps, Scope};
use crate::{Communicator, Error, ErrorKind, Result, Status};

/// Operations that own their buffers and outlive the call that started them: for event loops, and for work of which another function sees
/// the end. See [`start`].
///
/// Dropping a task waits for its operations; receives that have matched nothing are cancelled. Inside a callback nothing may wait, so a task
/// that is dropped there before its operations have succeeded leaks its buffers.
pub struct Task<B: 'static> {
    scope: Scope<'static, 'static>,
    buffers: Option<Kept<B>>,
    ended: Option<Result<()>>, // once it was waited for
}

/// Starts operations on `buffers`, which move into the task and come back from [`Task::wait`].
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{Communicator, Op};
///
/// let world = Communicator::open()?;
/// let mut task = commstream::start((vec![1.0f64; 100], vec![0.0f64; 100]), |s, (gradient, sum)| {
///     let _ = s.allreduce(&world, gradient, sum, Op::Sum)?;
///     Ok(())
/// })?;
/// while !task.is_complete() {
///     // poll other things
/// }
/// let (_gradient, sum) = task.wait()?;
/// assert_eq!(sum[0], world.size() as f64);
/// # Ok(()) }
/// ```
///
/// If `body` returns an error, what it started is waited for, and the buffers are lost. To keep them, put the error elsewhere:
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// # use commstream::{Communicator, ErrorKind, Op};
/// # let world = Communicator::open()?;
/// let mut refused = None;
/// let task = commstream::start(vec![1.0; 100], |s, sum| {
///     refused = s.reduce_in_place(&world, sum, Op::Sum, world.size()).err(); // no such root
///     Ok(())
/// })?;
/// let sum = task.wait()?;
/// assert_eq!((sum.len(), refused.unwrap().kind), (100, ErrorKind::Argument));
/// # Ok(()) }
/// ```
pub fn start<B: 'static>(
    buffers: B,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'scope>, &'scope mut B) -> Result<()>,
) -> Result<Task<B>> {
    // From here on the task's drop waits for what was started, also if the body panics.
    let task = Task { scope: Scope::new(), buffers: Some(Kept::new(buffers)), ended: None };
    let at = task.buffers.as_ref().expect("just put there").at();
    // SAFETY: the box is not touched, moved out of or freed before everything that was started on it has ended: `wait` and `drop` see to
    // that, and a task that is leaked leaks the box. The scope is not moved while the body has a reference to it.
    let started = body(unsafe { extended(&task.scope) }, unsafe { &mut *at });
    started.map(|()| task)
}

/// Calls a scope by a shorter lifetime than that of what it may borrow.
///
/// # Safety
/// Everything that is started on it ends before its buffers do.
unsafe fn extended<'scope>(scope: &Scope<'static, 'static>) -> &'scope Scope<'scope, 'scope> {
    // SAFETY: the lifetimes are marks only.
    unsafe { &*(scope as *const Scope<'static, 'static>).cast() }
}

// SAFETY: any thread may wait for the operations, and the buffers may be sent.
unsafe impl<B: Send + 'static> Send for Task<B> {}

impl<B: 'static> Task<B> {
    /// What runs, or what it ended with.
    pub(crate) fn running(&self) -> std::result::Result<Vec<ffi::comm_request>, Result<()>> {
        let running = Some(self.scope.requests()).filter(|requests| !requests.is_empty());
        running.ok_or_else(|| self.ended.clone().unwrap_or(Ok(())))
    }

    /// Whether all operations have ended, also with an error, which [`Task::wait`] returns. Makes progress if they have not.
    pub fn is_complete(&mut self) -> bool {
        inside::may_start().is_ok() && self.scope.test()
    }

    /// Waits for all operations, and returns the first error. [`Task::wait`] then returns the buffers, also after an error.
    ///
    /// Inside a callback it returns [`ErrorKind::State`] unless all have succeeded, and they go on.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// # use commstream::{Communicator, ErrorKind};
    /// let world = Communicator::open()?;
    /// let mut task = commstream::start(vec![0u8; 4], |s, text| s.receive(&world, text, Some(world.rank()), None).map(drop))?;
    /// world.send(b"too long", world.rank(), 0)?;
    /// assert_eq!(task.finish().unwrap_err().kind, ErrorKind::Truncated);
    /// let text = task.wait()?; // to be used again
    /// assert_eq!(text.len(), 4);
    /// # Ok(()) }
    /// ```
    pub fn finish(&mut self) -> Result<()> {
        if !self.scope.may_finish() {
            return Err(Error::new(ErrorKind::State, "the task has not succeeded yet; inside a callback nothing may wait for it"));
        }
        let scope = &self.scope;
        self.ended.get_or_insert_with(|| scope.finish()).clone()
    }

    /// Waits for all operations and returns the buffers, or the first error. The buffers are lost then, unless [`Task::finish`] has returned
    /// the error before. As that inside a callback: poll there.
    pub fn wait(mut self) -> Result<B> {
        if self.ended.is_none() {
            self.finish()?;
        }
        Ok(self.buffers.take().expect("taken only here").into_inner())
    }
}

impl<B: 'static> Drop for Task<B> {
    fn drop(&mut self) {
        if inside::may_start().is_ok() {
            self.scope.cancel();
        }
        if self.scope.may_finish() {
            let _ = self.scope.finish();
        } else {
            self.scope.finish_elsewhere();
            std::mem::forget(self.buffers.take()); // operations may be using them, and perhaps they cannot be sent
        }
    }
}

/// Operations that are recorded once and started many times, on buffers that the plan owns. See [`Communicator::plan`].
///
/// Dropping a plan waits for its last start. A receive of a plan cannot be cancelled: if its message never comes, that wait lasts until the
/// receive's deadline ([`Config::operation_timeout`](crate::Config::operation_timeout)), unless the program sends the message itself, or
/// gives up the communicator ([`Communicator::revoke`]).
pub struct Plan<B: 'static> {
    raw: *mut ffi::comm_plan,
    communicator: Communicator,
    running: Option<ffi::comm_request>, // the last start, until it was waited for
    ended: Result<()>,                  // what it ended with
    stray: bool,                        // a start failed, and some of its operations may be running
    buffers: Option<Kept<B>>,
    kept: Keeps,
}

// SAFETY: any thread may call the functions of plans, and the buffers may be sent.
unsafe impl<B: Send + 'static> Send for Plan<B> {}

impl Communicator {
    /// Records what `record` calls, with the communicator that it is given, as a plan: it can be started many times, without the cost of
    /// its calls. All ranks record the same collectives and start their plans in the same order.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Op};
    ///
    /// let world = Communicator::open()?;
    /// let mut plan = world.plan((vec![0.0f32; 8], vec![0.0f32; 8]), |s, recorder, (input, sum)| {
    ///     let _ = s.allreduce(recorder, input, sum, Op::Sum)?;
    ///     Ok(())
    /// })?;
    /// for step in 0..3 {
    ///     plan.buffers()?.0.fill(step as f32);
    ///     plan.start()?;
    ///     // compute
    ///     assert_eq!(plan.buffers()?.1[0], (step * world.size()) as f32);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn plan<B: 'static>(
        &self,
        buffers: B,
        record: impl for<'scope> FnOnce(&'scope Scope<'scope, 'scope>, &Recorder, &'scope mut B) -> Result<()>,
    ) -> Result<Plan<B>> {
        inside::may_wait()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open.
        self.handle.ask(|c| unsafe { ffi::comm_plan_begin(c, &mut raw) })?;
        let buffers = Kept::new(buffers);
        let at = buffers.at();
        let scope = Scope::new();
        // SAFETY: as in `start`. What is recorded does not run yet; what ran on other communicators has ended after `finish`, also if
        // `record` panics.
        let recorded =
            Recorder::record(self, raw, Recording::Plan, scope.mark(), |c| record(unsafe { extended(&scope) }, c, unsafe { &mut *at }));
        if !matches!(recorded, Ok(Ok(()))) {
            scope.cancel();
        }
        let finished = scope.finish();
        let mut plan = std::ptr::null_mut();
        // SAFETY: the recorder is consumed here.
        let ended = self.handle.check(unsafe { ffi::comm_plan_end(raw, &mut plan) });
        let (communicator, buffers) = (self.clone(), Some(buffers));
        let made = Plan { raw: plan, communicator, running: None, ended: Ok(()), stray: false, buffers, kept: scope.into_kept() };
        recorded.unwrap_or_else(|panic| resume_unwind(panic)).and(finished).and(ended).map(|()| made)
    }
}

impl<B: 'static> Plan<B> {
    /// What runs, or what the last start ended with.
    pub(crate) fn running(&self) -> std::result::Result<ffi::comm_request, Result<()>> {
        self.running.ok_or_else(|| self.ended.clone())
    }

    /// Waits for a start that nobody has waited for.
    fn settle(&mut self) -> Result<()> {
        if self.running.is_some() || self.stray {
            self.wait()
        } else {
            Ok(())
        }
    }

    /// Waits for what a failed start has started.
    fn drain(&mut self) -> Result<()> {
        if self.stray {
            inside::may_wait()?;
            let _ = self.communicator.sync(); // the start has told its error
            self.stray = false;
        }
        Ok(())
    }

    /// Starts the operations. A start that is still running is waited for first, and its error returned.
    ///
    /// [`ErrorKind::Full`]: nothing was started; make progress and call again. Any other error may come after some of the operations were
    /// started: then it waits for everything on the communicator, since they use the buffers.
    pub fn start(&mut self) -> Result<()> {
        self.settle()?;
        self.ended = Ok(());
        for receive in self.kept.receives() {
            // SAFETY: nothing runs.
            unsafe { receive.forget() };
        }
        let raw = self.raw;
        // The buffers are in the plan's box, which is given out only when nothing runs.
        let call = as_call(move |_, request| unsafe { ffi::comm_plan_start(raw, request) });
        match self.communicator.handle.start(call) {
            Ok(request) => self.running = Some(request),
            Err(error) => {
                self.stray = error.kind != ErrorKind::Full && inside::may_start().is_ok();
                let _ = self.drain(); // inside a callback later
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the last start has ended, also with an error, which [`Plan::wait`] returns. Makes progress if it has not.
    pub fn is_complete(&mut self) -> bool {
        // SAFETY: a request may be tested at any time.
        inside::may_start().is_ok()
            && !self.stray
            && self.running.map_or(true, |request| unsafe { ffi::comm_test(request) } != ffi::COMM_PENDING)
    }

    /// Waits for the last start, and returns its error, until the next one. Inside a callback it returns [`ErrorKind::State`] unless that
    /// has succeeded.
    ///
    /// A receive of the plan may end alone with an error: [`ErrorKind::Truncated`] if the message was too long, otherwise
    /// [`ErrorKind::Dependency`]: then [`Communicator::sync`] says why. [`Plan::statuses`] says which of them it was.
    pub fn wait(&mut self) -> Result<()> {
        self.drain()?;
        if let Some(request) = self.running {
            if !inside::may_finish(request) {
                return inside::may_wait();
            }
            self.running = None;
            let result = self.communicator.handle.finish(request);
            self.ended = self.kept.checked(result.and_then(|()| self.received()));
        }
        self.ended.clone()
    }

    /// The error of a receive, which the request of a plan does not have.
    fn received(&self) -> Result<()> {
        for (i, receive) in self.kept.receives().iter().enumerate() {
            // SAFETY: nothing runs.
            unsafe { receive.got() }.map_err(|length| match length {
                Some(bytes) => Error::new(ErrorKind::Truncated, format!("receive {i} of the plan: the message has {bytes} bytes")),
                None => Error::new(
                    ErrorKind::Dependency,
                    format!("receive {i} of the plan got no message; sync() of its communicator says why"),
                ),
            })?;
        }
        Ok(())
    }

    /// What the receives of the last start got, in the order in which they were recorded. `None`: that one ended with an error, or the plan
    /// was never started. Waits for the last start first, and returns its error as [`Plan::buffers`] does.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// let world = commstream::Communicator::open()?;
    /// let mut plan = world.plan([0u8; 100], |s, recorder, text| s.receive(recorder, text, None, None).map(drop))?;
    /// plan.start()?;
    /// world.send(b"hello", world.rank(), 0)?;
    /// let bytes = plan.statuses()?.next().flatten().map(|status| status.bytes);
    /// assert_eq!(bytes, Some(5));
    /// assert_eq!(plan.buffers()?[..5], *b"hello");
    /// # Ok(()) }
    /// ```
    pub fn statuses(&mut self) -> Result<impl Iterator<Item = Option<Status>> + '_> {
        self.settle()?;
        // SAFETY: nothing runs, and the iterator keeps `start` from being called.
        Ok(self.kept.receives().iter().map(|receive| unsafe { receive.got() }.ok()))
    }

    /// What the buffers hold, to be read and written where it is: slices of vectors, and so on ([`Buffers`]). Waits for the last start
    /// first, and returns its error if [`Plan::wait`] has not done so before: after a failed wait, this returns what the buffers hold then.
    ///
    /// A vector cannot be made longer or replaced, because the plan has recorded where its elements are:
    ///
    /// ```compile_fail
    /// # fn main() -> commstream::Result<()> {
    /// # use commstream::{Communicator, Op};
    /// # let world = Communicator::open()?;
    /// let mut plan = world.plan(vec![1u64; 8], |s, recorder, sum| {
    ///     let _ = s.allreduce_in_place(recorder, sum, Op::Sum)?;
    ///     Ok(())
    /// })?;
    /// plan.buffers()?.push(1);
    /// # Ok(()) }
    /// ```
    pub fn buffers(&mut self) -> Result<<B as Buffers<'_>>::View>
    where
        B: for<'a> Buffers<'a>,
    {
        self.settle()?;
        // SAFETY: nothing runs, and the view keeps `start` from being called. It can move no element, so what was recorded stays valid.
        Ok(unsafe { &mut *self.buffers.as_ref().expect("taken only by into_buffers").at() }.view())
    }

    /// Waits for the last start, and returns the buffers. If that fails they are lost, unless [`Plan::wait`] has returned the error before.
    pub fn into_buffers(mut self) -> Result<B> {
        self.settle()?;
        Ok(self.buffers.take().expect("taken only here").into_inner())
    }
}

impl<B: 'static> Drop for Plan<B> {
    fn drop(&mut self) {
        let _ = self.wait();
        if self.running.is_some() || self.stray {
            // Inside a callback nothing can wait. A start that runs finishes, and what it uses stays for ever.
            std::mem::forget((self.buffers.take(), std::mem::take(&mut self.kept)));
        }
        let (raw, communicator) = (AtomicPtr::new(self.raw), self.communicator.clone());
        inside::outside(move || {
            // SAFETY: it is freed once, and nothing runs, or it keeps what it uses. NULL, of a plan that was refused, is ignored.
            unsafe { ffi::comm_plan_free(raw.into_inner()) };
            drop(communicator);
        });
    }
}
