use std::panic::resume_unwind;

use commstream_sys as ffi;

use crate::buffers::Buffers;
use crate::handle::{as_call, NONE};
use crate::inside;
use crate::lent::Kept;
use crate::queue::Recorder;
use crate::scope::{Keeps, Scope};
use crate::{Communicator, Error, ErrorKind, Result};

/// Operations that own their buffers and outlive the call that started them: for event loops, and for work of which another function sees
/// the end. See [`start`].
///
/// Dropping a task waits for its operations; receives that have matched nothing are cancelled. Inside a callback nothing may wait, so a task
/// that is dropped there before its operations have succeeded leaks its buffers.
pub struct Task<B: 'static> {
    scope: Scope<'static, 'static>,
    buffers: Option<Kept<B>>,
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
pub fn start<B: 'static>(
    buffers: B,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'scope>, &'scope mut B) -> Result<()>,
) -> Result<Task<B>> {
    // From here on the task's drop waits for what was started, also if the body panics.
    let task = Task { scope: Scope::new(), buffers: Some(Kept::new(buffers)) };
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
    pub(crate) fn requests(&self) -> Vec<ffi::comm_request> {
        self.scope.requests()
    }

    /// Whether all operations have ended, also with an error, which [`Task::wait`] returns. Makes progress if they have not.
    pub fn is_complete(&mut self) -> bool {
        self.scope.test()
    }

    /// Waits for all operations and returns the buffers, or the first error.
    ///
    /// Inside a callback it returns [`ErrorKind::State`] unless all have succeeded, and the buffers are lost: poll there.
    pub fn wait(mut self) -> Result<B> {
        if !self.scope.may_finish() {
            return Err(Error::new(ErrorKind::State, "the task has not succeeded yet; inside a callback nothing may wait for it"));
        }
        self.scope.finish()?;
        Ok(self.buffers.take().expect("taken only here").into_inner())
    }
}

impl<B: 'static> Drop for Task<B> {
    fn drop(&mut self) {
        self.scope.cancel();
        if self.scope.may_finish() {
            let _ = self.scope.finish();
        } else {
            self.scope.finish_elsewhere();
            std::mem::forget(self.buffers.take()); // operations may be using them, and perhaps they cannot be sent
        }
    }
}

/// Operations that are recorded once and started many times, on buffers that the plan owns. See [`Communicator::plan`].
pub struct Plan<B: 'static> {
    raw: *mut ffi::comm_plan,
    communicator: Communicator,
    running: ffi::comm_request,
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
        self.handle.check(unsafe { ffi::comm_plan_begin(self.handle.raw(), &mut raw) })?;
        let buffers = Kept::new(buffers);
        let at = buffers.at();
        let scope = Scope::new();
        // SAFETY: as in `start`. What is recorded does not run yet; what ran on other communicators has ended after `finish`, also if
        // `record` panics.
        let recorded = Recorder::record(self, raw, scope.mark(), |c| record(unsafe { extended(&scope) }, c, unsafe { &mut *at }));
        if !matches!(recorded, Ok(Ok(()))) {
            scope.cancel();
        }
        let finished = scope.finish();
        let mut plan = std::ptr::null_mut();
        // SAFETY: the recorder is consumed here.
        let ended = self.handle.check(unsafe { ffi::comm_plan_end(raw, &mut plan) });
        let made = Plan { raw: plan, communicator: self.clone(), running: NONE, buffers: Some(buffers), kept: scope.into_kept() };
        recorded.unwrap_or_else(|panic| resume_unwind(panic)).and(finished).and(ended).map(|()| made)
    }
}

impl<B: 'static> Plan<B> {
    pub(crate) fn running(&self) -> ffi::comm_request {
        self.running
    }

    /// Starts the operations. A start that is still running is waited for first.
    pub fn start(&mut self) -> Result<()> {
        self.wait()?;
        let raw = self.raw;
        // The buffers are in the plan's box, which is given out only when nothing runs.
        let call = as_call(move |_, request| unsafe { ffi::comm_plan_start(raw, request) });
        self.running = self.communicator.handle.start(call)?;
        Ok(())
    }

    /// Whether the last start has ended, also with an error, which [`Plan::wait`] returns. Makes progress if it has not.
    pub fn is_complete(&mut self) -> bool {
        // SAFETY: a request may be tested at any time.
        unsafe { ffi::comm_test(self.running) != ffi::COMM_PENDING }
    }

    /// Waits for the last start. Inside a callback it returns [`ErrorKind::State`] unless that has succeeded.
    pub fn wait(&mut self) -> Result<()> {
        if !inside::may_finish(self.running) {
            return inside::may_wait();
        }
        let result = self.communicator.handle.finish(std::mem::replace(&mut self.running, NONE));
        self.kept.checked(result)
    }

    /// What the buffers hold, to be read and written where it is: slices of vectors, and so on ([`Buffers`]). Waits for the last start
    /// first.
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
        self.wait()?;
        // SAFETY: nothing runs, and the view keeps `start` from being called. It can move no element, so what was recorded stays valid.
        Ok(unsafe { &mut *self.buffers.as_ref().expect("taken only by into_buffers").at() }.view())
    }

    /// Waits for the last start, and returns the buffers.
    pub fn into_buffers(mut self) -> Result<B> {
        self.wait()?;
        Ok(self.buffers.take().expect("taken only here").into_inner())
    }
}

impl<B: 'static> Drop for Plan<B> {
    fn drop(&mut self) {
        if inside::may_finish(self.running) {
            let _ = self.wait();
        } else {
            // Inside a callback nothing can wait. A start that runs finishes, and what it uses stays for ever.
            std::mem::forget((self.buffers.take(), std::mem::take(&mut self.kept)));
        }
        // SAFETY: it is freed once, and nothing runs, or it keeps what it uses. NULL, of a plan that was refused, is ignored.
        unsafe { ffi::comm_plan_free(self.raw) };
    }
}
