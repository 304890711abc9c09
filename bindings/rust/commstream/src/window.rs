use std::sync::Arc;

use commstream_sys as ffi;

use crate::handle::{as_call, Call, Handle};
use crate::lent::Lent;
use crate::request::Request;
use crate::scope::Scope;
use crate::span::Span;
use crate::{Communicator, Element, Error, ErrorKind, Op, Result};

/// Memory of all ranks that each of them can read, write and update without the owner taking part.
///
/// A window is always open. Calls of one rank on one part are done in order; [`Scope::flush`] and [`Window::fence`] say when they are
/// visible. Offsets are in bytes.
pub struct Window {
    raw: *mut ffi::comm_window,
    communicator: Communicator,
}

// SAFETY: any thread may call the functions of windows.
unsafe impl Send for Window {}
unsafe impl Sync for Window {}

/// On which NUMA nodes the pages of a window are: [`Communicator::window_placed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Placement {
    /// Where they are first written.
    FirstTouch = ffi::COMM_PLACEMENT_FIRST_TOUCH,
    /// On all nodes in turn.
    Interleave = ffi::COMM_PLACEMENT_INTERLEAVE,
}

impl Communicator {
    /// Makes a window in which this rank has `bytes` bytes of zeroed memory, and `signals` counters. Collective; `bytes` may differ.
    pub fn window(&self, bytes: usize, signals: u32) -> Result<Window> {
        self.window_as(bytes, signals, ffi::COMM_PLACEMENT_DEFAULT)
    }

    /// As [`Communicator::window`], with this rank's pages on chosen NUMA nodes.
    pub fn window_placed(&self, bytes: usize, signals: u32, placement: Placement) -> Result<Window> {
        self.window_as(bytes, signals, placement as ffi::comm_placement)
    }

    fn window_as(&self, bytes: usize, signals: u32, placement: ffi::comm_placement) -> Result<Window> {
        let mut raw = std::ptr::null_mut();
        let into: *mut *mut ffi::comm_window = &mut raw;
        let size = std::mem::size_of::<ffi::comm_window_options>();
        let options = ffi::comm_window_options { size, signals, placement, ..Default::default() };
        self.handle.run(as_call(move |c, request| unsafe { ffi::comm_window_create(c, bytes, &options, into, request) }))?;
        Ok(Window { raw, communicator: self.clone() })
    }
}

/// Calls of a window have no communicator among their arguments.
fn on(w: *mut ffi::comm_window, call: impl FnOnce(*mut ffi::comm_window, *mut ffi::comm_request) -> ffi::comm_result) -> impl Call {
    move |_: *mut ffi::comm_communicator, request: *mut ffi::comm_request| call(w, request)
}

impl Window {
    fn handle(&self) -> &Arc<Handle> {
        &self.communicator.handle
    }

    /// The address and length of a rank's part, for direct loads and stores, if this process shares memory with it.
    ///
    /// Other ranks may write it at any time: use atomic operations, or only what a fence or signal has made visible. It is valid until the
    /// window is freed or its communicator closed.
    pub fn pointer(&self, peer: i32) -> Result<(*mut u8, usize)> {
        let (mut at, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the window is open.
        self.handle().ask(|_| unsafe { ffi::comm_window_pointer(self.raw, peer, &mut at, &mut bytes) })?;
        Ok((at.cast(), bytes))
    }

    /// Makes everything that any rank did to the window before visible to all ranks. Collective.
    pub fn fence(&self) -> Result<()> {
        self.handle().run(on(self.raw, |w, request| unsafe { ffi::comm_window_fence(w, request) }))
    }

    /// Frees the window. Collective. A window that is dropped instead is freed when its communicator is closed.
    pub fn free(self) -> Result<()> {
        // SAFETY: it is open, and consumed here. Requests on it have ended: a scope borrows the window.
        self.handle().ask(|_| unsafe { ffi::comm_window_free(self.raw) })
    }

    /// Writes elements to a rank's part. They are there after a flush, fence or signal.
    pub fn put<T: Element>(&self, from: &[T], peer: i32, offset: usize) -> Result<()> {
        self.handle().run(put::<T>(self.raw, Span::of(from), peer, offset))
    }

    /// Reads elements of a rank's part.
    pub fn get<T: Element>(&self, to: &mut [T], peer: i32, offset: usize) -> Result<()> {
        self.handle().run(get::<T>(self.raw, Span::of_mut(to), peer, offset))
    }

    /// Combines elements with those of a rank's part, each atomically, and returns what was there before in `old`.
    pub fn fetch_op<T: Element>(&self, from: &[T], old: &mut [T], op: Op, peer: i32, offset: usize) -> Result<()> {
        self.handle().run(fetch_op::<T>(self.raw, Span::of(from), Span::of_mut(old), op, peer, offset)?)
    }

    /// Combines elements with those of a rank's part, each atomically.
    pub fn accumulate<T: Element>(&self, from: &[T], op: Op, peer: i32, offset: usize) -> Result<()> {
        self.handle().run(accumulate::<T>(self.raw, Span::of(from), op, peer, offset))
    }

    /// Replaces an element of a rank's part by `desired` if it is `expected`, atomically, and returns what was there.
    pub fn compare_swap<T: Element>(&self, expected: T, desired: T, peer: i32, offset: usize) -> Result<T> {
        if T::COUNT != 1 {
            let text = format!("compare_swap: an element has {} numbers; expected one", T::COUNT);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let (expected, desired, mut old) = ([expected], [desired], [expected]);
        let (from, by, to) = (Span::of(&expected), Span::of(&desired), Span::of_mut(&mut old));
        let call = move |w, request| unsafe { ffi::comm_compare_swap(w, from.at, by.at, to.at, T::TYPE, peer, offset, request) };
        self.handle().run(on(self.raw, call))?;
        Ok(old[0])
    }

    /// Waits until everything that this rank did to a part is done there; `None`: to all parts.
    pub fn flush(&self, peer: Option<i32>) -> Result<()> {
        self.handle().run(flush(self.raw, peer))
    }

    /// Adds to a counter of another rank, after what this rank did to its part before.
    pub fn signal(&self, peer: i32, slot: u32, add: u64) -> Result<()> {
        self.handle().run(on(self.raw, move |w, request| unsafe { ffi::comm_window_signal(w, peer, slot, add, request) }))
    }

    /// Waits until a counter of this rank is at least a value.
    pub fn wait_signal(&self, slot: u32, at_least: u64) -> Result<()> {
        self.handle().run(on(self.raw, move |w, request| unsafe { ffi::comm_window_wait_signal(w, slot, at_least, request) }))
    }
}

fn put<T: Element>(w: *mut ffi::comm_window, from: Span, peer: i32, offset: usize) -> impl Call {
    let n = from.length * T::COUNT;
    on(w, move |w, request| unsafe { ffi::comm_put(w, from.at, n, T::TYPE, peer, offset, request) })
}

fn get<T: Element>(w: *mut ffi::comm_window, to: Span, peer: i32, offset: usize) -> impl Call {
    let n = to.length * T::COUNT;
    on(w, move |w, request| unsafe { ffi::comm_get(w, to.at, n, T::TYPE, peer, offset, request) })
}

fn accumulate<T: Element>(w: *mut ffi::comm_window, from: Span, op: Op, peer: i32, offset: usize) -> impl Call {
    let n = from.length * T::COUNT;
    on(w, move |w, request| unsafe { ffi::comm_accumulate(w, from.at, n, T::TYPE, op as u32, peer, offset, request) })
}

fn fetch_op<T: Element>(w: *mut ffi::comm_window, from: Span, old: Span, op: Op, peer: i32, offset: usize) -> Result<impl Call> {
    if from.length != old.length {
        let text = format!("fetch_op: old has {} elements; expected as many as from, {}", old.length, from.length);
        return Err(Error::new(ErrorKind::Argument, text));
    }
    let n = old.length * T::COUNT;
    Ok(on(w, move |w, request| unsafe { ffi::comm_fetch_op(w, from.at, old.at, n, T::TYPE, op as u32, peer, offset, request) }))
}

fn flush(w: *mut ffi::comm_window, peer: Option<i32>) -> impl Call {
    on(w, move |w, request| unsafe { ffi::comm_window_flush(w, peer.unwrap_or(ffi::COMM_ANY_PEER), request) })
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts [`Window::put`].
    pub fn put<T: Element>(&'scope self, w: &'scope Window, from: &'scope [T], peer: i32, offset: usize) -> Result<Request<'scope>> {
        self.begin(&w.communicator, put::<T>(w.raw, Span::of(from), peer, offset), ())
    }

    /// Starts [`Window::get`].
    pub fn get<T: Element>(
        &'scope self,
        w: &'scope Window,
        to: &'scope mut [T],
        peer: i32,
        offset: usize,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let to = Lent::new(to);
        let call = get::<T>(w.raw, to.span(), peer, offset);
        self.begin(&w.communicator, call, to)
    }

    /// Starts [`Window::accumulate`].
    pub fn accumulate<T: Element>(
        &'scope self,
        w: &'scope Window,
        from: &'scope [T],
        op: Op,
        peer: i32,
        offset: usize,
    ) -> Result<Request<'scope>> {
        self.begin(&w.communicator, accumulate::<T>(w.raw, Span::of(from), op, peer, offset), ())
    }

    /// Starts [`Window::fetch_op`].
    pub fn fetch_op<T: Element>(
        &'scope self,
        w: &'scope Window,
        from: &'scope [T],
        old: &'scope mut [T],
        op: Op,
        peer: i32,
        offset: usize,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let old = Lent::new(old);
        let call = fetch_op::<T>(w.raw, Span::of(from), old.span(), op, peer, offset)?;
        self.begin(&w.communicator, call, old)
    }

    /// Starts [`Window::flush`].
    pub fn flush(&'scope self, w: &'scope Window, peer: Option<i32>) -> Result<Request<'scope>> {
        self.begin(&w.communicator, flush(w.raw, peer), ())
    }
}
