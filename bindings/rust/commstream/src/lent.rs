use std::marker::PhantomData;
use std::ptr::NonNull;

use commstream_sys as ffi;

use crate::Status;

/// What a request gives back once its operation is complete.
pub trait Output {
    /// What [`Request::wait`](crate::Request::wait) returns.
    type Value;
    #[doc(hidden)]
    fn value(self) -> Self::Value;
}

impl Output for () {
    type Value = ();
    fn value(self) {}
}

/// An output that an operation may be writing. It is a pointer, since nobody may hold a reference to it meanwhile.
pub struct Lent<'scope, T> {
    at: NonNull<T>,
    length: usize,
    of: PhantomData<&'scope mut [T]>,
}

impl<'scope, T> Lent<'scope, T> {
    pub(crate) fn new(slice: &'scope mut [T]) -> Lent<'scope, T> {
        let length = slice.len();
        Lent { at: NonNull::from(slice).cast(), length, of: PhantomData }
    }

    /// To name it in a call. The reference is gone before the operation starts.
    pub(crate) fn slice(&mut self) -> &mut [T] {
        // SAFETY: it is borrowed for 'scope, and nobody uses it yet.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }
    }
}

impl<'scope, T> Output for Lent<'scope, T> {
    type Value = &'scope mut [T];
    fn value(self) -> &'scope mut [T] {
        // SAFETY: it is borrowed for 'scope, and the operation is complete.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }
    }
}

impl<O: Output> Output for Option<O> {
    type Value = Option<O::Value>;
    fn value(self) -> Option<O::Value> {
        self.map(Output::value)
    }
}

/// The output of a receive, until it is complete.
pub struct Received<'scope, T> {
    pub(crate) buffer: Lent<'scope, T>,
    pub(crate) status: *const ffi::comm_status,
}

impl<'scope, T> Output for Received<'scope, T> {
    /// The whole buffer, and what came: its first [`Status::count`] elements.
    type Value = (&'scope mut [T], Status);
    fn value(self) -> Self::Value {
        // SAFETY: the scope keeps the status, and the operation that wrote it is complete.
        (self.buffer.value(), unsafe { Status::of(*self.status) })
    }
}

/// A box whose contents operations may be using: a pointer, for the same reason.
pub(crate) struct Kept<B>(NonNull<B>);

impl<B> Kept<B> {
    pub(crate) fn new(value: B) -> Kept<B> {
        Kept(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(crate) fn at(&self) -> *mut B {
        self.0.as_ptr()
    }

    /// Nobody may be using it.
    pub(crate) fn into_inner(self) -> B {
        let at = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: it came from a box, and is freed only here or in drop.
        *unsafe { Box::from_raw(at.as_ptr()) }
    }
}

impl<B> Drop for Kept<B> {
    fn drop(&mut self) {
        // SAFETY: as in into_inner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
