use std::marker::PhantomData;
use std::ops::Range;
use std::os::raw::c_void;
use std::time::Duration;

use commstream_sys as ffi;

use crate::inside;
use crate::lent::Output;
use crate::span::Span;
use crate::{nanoseconds, Communicator, Element, Error, Event, Request, Result};

/// Elements in memory of a device, which calls read. The host cannot: there is no way from it to a reference.
pub struct DeviceSlice<'a, T> {
    at: *const T,
    length: usize,
    of: PhantomData<&'a [T]>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

/// Elements in memory of a device, which calls write. The host cannot: there is no way from it to a reference.
///
/// It is used like `&mut [T]`: [`DeviceSliceMut::reborrow`] lends it, and a call gives it back from [`Request::wait`].
pub struct DeviceSliceMut<'a, T> {
    at: *mut T,
    length: usize,
    of: PhantomData<&'a mut [T]>,
}

// SAFETY: they are as slices in what may be done with them from which thread.
unsafe impl<T: Sync> Send for DeviceSlice<'_, T> {}
unsafe impl<T: Sync> Sync for DeviceSlice<'_, T> {}
unsafe impl<T: Send> Send for DeviceSliceMut<'_, T> {}
unsafe impl<T: Sync> Sync for DeviceSliceMut<'_, T> {}

impl<'a, T: Element> DeviceSlice<'a, T> {
    /// `length` elements at an address of a device, such as that of `cudaMalloc`.
    ///
    /// # Safety
    ///
    /// For `'a`, there is memory of `length` elements of a CUDA device that this process uses (or of the host), and while an operation reads
    /// it nobody writes it. What runs on a stream is put in order with operations by [`Stream::before`] and [`Request::before_stream`].
    pub unsafe fn new(at: *const T, length: usize) -> DeviceSlice<'a, T> {
        DeviceSlice { at, length, of: PhantomData }
    }

    /// Its address.
    pub fn as_ptr(&self) -> *const T {
        self.at
    }

    /// Its length in elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of it. Panics if it is not inside.
    pub fn part(&self, range: Range<usize>) -> DeviceSlice<'a, T> {
        let length = length_of(&range, self.length);
        DeviceSlice { at: self.at.wrapping_add(range.start), length, of: PhantomData }
    }

    pub(crate) fn span(&self) -> Span {
        Span::new(self.at, self.length)
    }
}

impl<'a, T: Element> DeviceSliceMut<'a, T> {
    /// `length` elements at an address of a device, such as that of `cudaMalloc`.
    ///
    /// # Safety
    ///
    /// For `'a`, there is memory of `length` elements of a CUDA device that this process uses (or of the host), and nobody else uses it, on
    /// the host or on the device, except in an order that [`Stream::before`] and [`Request::before_stream`] give.
    pub unsafe fn new(at: *mut T, length: usize) -> DeviceSliceMut<'a, T> {
        DeviceSliceMut { at, length, of: PhantomData }
    }

    /// Lends it for a shorter time.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { at: self.at, length: self.length, of: PhantomData }
    }

    /// Gives it up to be only read, as long as it lives.
    pub fn into_slice(self) -> DeviceSlice<'a, T> {
        DeviceSlice { at: self.at, length: self.length, of: PhantomData }
    }

    /// Lends it to be read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { at: self.at, length: self.length, of: PhantomData }
    }

    /// Its address.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.at
    }

    /// Its length in elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of it. Panics if it is not inside.
    pub fn part(&mut self, range: Range<usize>) -> DeviceSliceMut<'_, T> {
        let length = length_of(&range, self.length);
        DeviceSliceMut { at: self.at.wrapping_add(range.start), length, of: PhantomData }
    }

    /// Two parts: the elements before `middle`, and the rest. Panics if that is not inside.
    pub fn split_at(self, middle: usize) -> (DeviceSliceMut<'a, T>, DeviceSliceMut<'a, T>) {
        let length = length_of(&(middle..self.length), self.length);
        let rest = DeviceSliceMut { at: self.at.wrapping_add(middle), length, of: PhantomData };
        (DeviceSliceMut { at: self.at, length: middle, of: PhantomData }, rest)
    }

    pub(crate) fn span(&self) -> Span {
        Span::new(self.at, self.length)
    }
}

fn length_of(range: &Range<usize>, length: usize) -> usize {
    assert!(range.start <= range.end && range.end <= length, "{range:?} is not inside of {length} elements");
    range.end - range.start
}

impl<T> Output for DeviceSliceMut<'_, T> {
    /// Itself: nobody can look at the memory through it, so it need not be kept from the program meanwhile.
    type Value = Self;
    fn value(self) -> Self {
        self
    }
    type Buffer = Self;
    fn buffer(self) -> Self {
        self
    }
}

/// A CUDA stream of the program's.
///
/// Communicators and streams wait for each other in a world of any backend. Without a CUDA driver and device its methods return
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(*mut ffi::CUstream_st);

// SAFETY: any thread may use a stream.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    /// The legacy default stream of the context that is current.
    pub const DEFAULT: Stream = Stream(std::ptr::null_mut());

    /// A `cudaStream_t` or `CUstream`.
    ///
    /// # Safety
    ///
    /// It is a stream of the primary context of a device that this process uses, and outlives the work that is put on it and the
    /// communicators that are made on it.
    pub unsafe fn from_raw(raw: *mut c_void) -> Stream {
        Stream(raw.cast())
    }

    /// The `cudaStream_t` or `CUstream`.
    pub fn as_raw(self) -> *mut c_void {
        self.0.cast()
    }

    pub(crate) fn raw(self) -> *mut ffi::CUstream_st {
        self.0
    }

    /// Lets everything issued on `c` afterwards start only when everything on the stream so far is done. Returns at once.
    pub fn before(self, c: &Communicator) -> Result<()> {
        // SAFETY: the handle is open, and the stream exists.
        c.handle.ask(|c| unsafe { ffi::comm_queue_wait_stream(c, self.0) })
    }
}

/// CUDA streams.
impl Event {
    /// Marks everything on a stream so far: the event is reached when that is done.
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        inside::may_start()?;
        // SAFETY: both exist.
        self.check(unsafe { ffi::comm_event_record_stream(self.raw(), stream.0) })
    }

    /// Lets everything that is put on the stream afterwards start only when the event is reached. The host goes on.
    pub fn before_stream(&self, stream: Stream) -> Result<()> {
        inside::may_start()?;
        // SAFETY: both exist.
        self.check(unsafe { ffi::comm_stream_wait_event(stream.0, self.raw()) })
    }
}

/// CUDA streams.
impl<O> Request<'_, O> {
    /// Lets everything that is put on the stream afterwards start only when this operation is complete. The host goes on.
    pub fn before_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: the stream exists, and a request may be named at any time.
        match unsafe { ffi::comm_stream_wait_request(stream.0, self.raw()?) } {
            ffi::COMM_OK => Ok(()),
            result => Err(Error::plain(result)),
        }
    }
}

/// CUDA streams.
impl Communicator {
    /// The address of the stream on which the device work of this communicator runs, to order other work behind it: with backend nccl, or
    /// what [`Communicator::duplicate_on`] was given. A stream of the library's own belongs to the library: do not synchronise or destroy it.
    ///
    /// It is an address because it lives only as long as the communicator. What makes a [`Stream`] of it ([`Stream::from_raw`], which is
    /// unsafe) sees to that; a close ends the stream:
    ///
    /// ```compile_fail
    /// # fn main() -> commstream::Result<()> {
    /// # let world = commstream::Communicator::open()?;
    /// let own = world.duplicate()?;
    /// let stream = own.stream()?;
    /// own.close(commstream::FOREVER)?;
    /// stream.before(&world) // error: it is only an address
    /// # }
    /// ```
    pub fn stream(&self) -> Result<*mut c_void> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open.
        self.handle.ask(|c| unsafe { ffi::comm_stream_of(c, &mut raw) })?;
        Ok(raw.cast())
    }

    /// Waits until everything issued on a communicator with a stream so far is complete, on the device too. `false`: `timeout` passed first.
    pub fn stream_sync(&self, timeout: Duration) -> Result<bool> {
        // SAFETY: the handle is open.
        self.handle.ask_pending(|c| unsafe { ffi::comm_stream_sync(c, nanoseconds(timeout)) })
    }
}
