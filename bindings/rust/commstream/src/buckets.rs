use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;

use commstream_sys as ffi;

use crate::inside;
use crate::{Communicator, DeviceSliceMut, Element, Error, ErrorKind, Op, Result, Stream};

/// Gradients that are summed while the backward pass goes on.
///
/// The program reports each gradient when it is written; full buckets of gradients are reduced meanwhile. All ranks make the same buckets.
/// A gradient that is not reported in a step counts as zeros.
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{BucketOptions, Buckets, Communicator};
///
/// let world = Communicator::open()?;
/// // One length for each layer, in the order of the forward pass.
/// let mut gradients = Buckets::<f32>::new(&world, &[1000, 200, 10], BucketOptions::default())?;
/// for _step in 0..3 {
///     for layer in (0..3).rev() {
///         gradients.gradient(layer)?.fill(1.0); // the backward pass
///         gradients.ready(layer)?;
///     }
///     gradients.wait()?;
///     assert_eq!(gradients.gradient(0)?[999], 1.0); // the mean of all ranks
/// }
/// # Ok(()) }
/// ```
pub struct Buckets<T: Element> {
    raw: *mut ffi::comm_buckets,
    lengths: Vec<usize>,
    ready: Ready,
    failed: bool,
    /// A duplicate: nobody else may issue collectives on it while a step runs.
    own: Communicator,
    of: PhantomData<T>,
}

/// Which gradients of a step were reported. They are the library's until the step ends.
struct Ready(Vec<bool>);

impl Ready {
    fn new(count: usize) -> Ready {
        Ready(vec![false; count])
    }

    fn has(&self, i: usize) -> Result<bool> {
        self.0.get(i).copied().ok_or_else(|| {
            Error::new(ErrorKind::Argument, format!("gradient {i} does not exist; expected 0 to {}", self.0.len().saturating_sub(1)))
        })
    }
}

fn not_yours(i: usize) -> Error {
    Error::new(ErrorKind::State, format!("gradient {i} is the library's until the step's wait has succeeded"))
}

// SAFETY: any thread may call, one at a time, and elements may be sent.
unsafe impl<T: Element> Send for Buckets<T> {}

/// How [`Buckets`] are made: the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct BucketOptions {
    /// The size of a bucket in bytes; 0: 25 MiB.
    pub bytes: usize,
    /// The size of the bucket that runs first, which has the gradients of the last layers; 0: 1 MiB.
    pub first_bytes: usize,
    /// How gradients are combined: the mean, unless another one is chosen.
    pub op: Op,
}

impl Default for BucketOptions {
    fn default() -> BucketOptions {
        BucketOptions { bytes: 0, first_bytes: 0, op: Op::Avg }
    }
}

/// The library aligns each gradient to this many bytes.
const ALIGNED: usize = 64;

fn gradient<T: Element>(count: usize) -> Result<ffi::comm_gradient> {
    let all = count.checked_mul(T::COUNT).filter(|_| count.checked_mul(std::mem::size_of::<T>()).is_some());
    let count =
        all.ok_or_else(|| Error::new(ErrorKind::Argument, format!("a gradient of {count} elements; expected one that fits in memory")))?;
    Ok(ffi::comm_gradient { data: std::ptr::null_mut(), count, type_: T::TYPE, reserved: 0 })
}

/// `adopt`: where the gradients are stored, 1: memory of the host, 2: of the device.
fn create<T: Element>(own: &Communicator, lengths: &[usize], options: BucketOptions, adopt: i32) -> Result<*mut ffi::comm_buckets> {
    if std::mem::align_of::<T>() > ALIGNED {
        let text = format!("elements are aligned to {} bytes; expected {ALIGNED} at most", std::mem::align_of::<T>());
        return Err(Error::new(ErrorKind::Argument, text));
    }
    let list = lengths.iter().map(|count| gradient::<T>(*count)).collect::<Result<Vec<_>>>()?;
    let how = ffi::comm_bucket_options {
        size: std::mem::size_of::<ffi::comm_bucket_options>(),
        bytes: options.bytes,
        first_bytes: options.first_bytes,
        op: options.op as u32,
        adopt,
    };
    let mut raw = std::ptr::null_mut();
    // SAFETY: the list and the options are copied, and with `adopt` the library has the memory.
    own.handle.ask(|c| unsafe { ffi::comm_buckets_create(c, list.as_ptr(), list.len(), &how, &mut raw) })?;
    Ok(raw)
}

/// Waits for a running step. Inside a callback, where nothing may wait, a thread of its own does.
fn free(raw: *mut ffi::comm_buckets, own: &Communicator) {
    if inside::may_wait().is_ok() {
        // SAFETY: they are freed once.
        return unsafe { ffi::comm_buckets_free(raw) };
    }
    let (raw, own) = (AtomicPtr::new(raw), own.clone());
    inside::elsewhere(move || {
        // SAFETY: as above, and the communicator is still open.
        unsafe { ffi::comm_buckets_free(raw.into_inner()) };
        drop(own);
    });
}

impl<T: Element> Buckets<T> {
    /// Makes zeroed gradients of these lengths, in the order of the forward pass. Collective, since it duplicates the communicator.
    pub fn new(c: &Communicator, lengths: &[usize], options: BucketOptions) -> Result<Buckets<T>> {
        let own = c.duplicate()?;
        let raw = create::<T>(&own, lengths, options, 1)?;
        Ok(Buckets { raw, lengths: lengths.into(), ready: Ready::new(lengths.len()), failed: false, own, of: PhantomData })
    }

    fn check(&self, result: ffi::comm_result) -> Result<()> {
        self.own.handle.check(result)
    }

    /// A gradient, to be written, or after [`Buckets::wait`] to be read. [`ErrorKind::State`] from [`Buckets::ready`] to the end of the
    /// step, and after a step that failed.
    pub fn gradient(&mut self, i: usize) -> Result<&mut [T]> {
        inside::may_start()?;
        if self.ready.has(i)? || self.failed {
            return Err(not_yours(i));
        }
        let mut at = std::ptr::null_mut();
        // SAFETY: the buckets are open.
        self.check(unsafe { ffi::comm_buckets_data(self.raw, i, &mut at) })?;
        if at.is_null() {
            return Ok(&mut []);
        }
        // SAFETY: it is aligned, zeroed or written, and not touched by the library until `ready` or `wait`, which need the buckets.
        Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), self.lengths[i]) })
    }

    /// Reports that a gradient of this step is written.
    pub fn ready(&mut self, i: usize) -> Result<()> {
        inside::may_start()?;
        self.ready.has(i)?;
        // SAFETY: the buckets are open; the gradient cannot be borrowed now.
        self.check(unsafe { ffi::comm_buckets_ready(self.raw, i) })?;
        self.ready.0[i] = true;
        Ok(())
    }

    /// Ends the step: waits until all gradients are reduced. [`ErrorKind::Full`]: the queue had no room; the step goes on, call again.
    pub fn wait(&mut self) -> Result<()> {
        inside::may_wait()?;
        // SAFETY: the buckets are open.
        let result = unsafe { ffi::comm_buckets_wait(self.raw, ffi::COMM_FOREVER) };
        if result == ffi::COMM_OK {
            self.ready.0.fill(false);
        }
        self.failed |= result != ffi::COMM_OK && result != ffi::COMM_ERR_FULL;
        self.check(result)
    }

    /// Turns the reduction off, or on again, for gradient accumulation: steps meanwhile keep their gradients. On all ranks, between steps.
    pub fn hold(&mut self, on: bool) -> Result<()> {
        inside::may_start()?;
        // SAFETY: the buckets are open.
        self.check(unsafe { ffi::comm_buckets_hold(self.raw, i32::from(on)) })
    }
}

impl<T: Element> Drop for Buckets<T> {
    fn drop(&mut self) {
        free(self.raw, &self.own);
    }
}

/// Gradients in memory of a device, which are summed while the backward pass goes on there. The host waits for nothing.
///
/// As [`Buckets`], but streams report and wait. A gradient of a step that is not reported counts as zeros.
///
/// ```no_run
/// # fn main() -> commstream::Result<()> {
/// use commstream::{BucketOptions, Communicator, DeviceBuckets, DeviceSliceMut, Stream};
/// # fn backward(_: usize, _: DeviceSliceMut<'_, f32>, _: Stream) {}
/// # fn optimise(_: &mut DeviceBuckets<f32>, _: Stream) {}
///
/// let world = Communicator::open()?;
/// let stream = Stream::DEFAULT;
/// let mut gradients = DeviceBuckets::<f32>::new(&world, &[1000, 200, 10], BucketOptions::default())?;
/// for _step in 0..3 {
///     for layer in (0..3).rev() {
///         // SAFETY: only kernels on this stream use it.
///         backward(layer, unsafe { gradients.gradient(layer)? }, stream); // kernels that write it
///         gradients.ready(layer, stream)?;
///     }
///     gradients.wait(stream)?;
///     optimise(&mut gradients, stream); // kernels that read the sums
/// }
/// world.sync_all() // before results leave the device
/// # }
/// ```
pub struct DeviceBuckets<T: Element> {
    raw: *mut ffi::comm_buckets,
    lengths: Vec<usize>,
    ready: Ready,
    own: Communicator, // as of Buckets
    of: PhantomData<T>,
}

// SAFETY: any thread may call, one at a time, and elements may be sent.
unsafe impl<T: Element> Send for DeviceBuckets<T> {}

impl<T: Element> DeviceBuckets<T> {
    /// Makes gradients of these lengths, in the order of the forward pass, in memory of the communicator's device. They are not zeroed.
    /// Collective. [`ErrorKind::Unsupported`] without a device.
    pub fn new(c: &Communicator, lengths: &[usize], options: BucketOptions) -> Result<DeviceBuckets<T>> {
        let own = c.duplicate()?;
        let raw = create::<T>(&own, lengths, options, 2)?;
        Ok(DeviceBuckets { raw, lengths: lengths.into(), ready: Ready::new(lengths.len()), own, of: PhantomData })
    }

    fn check(&self, result: ffi::comm_result) -> Result<()> {
        self.own.handle.check(result)
    }

    /// A gradient, for kernels of a stream. [`ErrorKind::State`] from [`DeviceBuckets::ready`] to [`DeviceBuckets::wait`].
    ///
    /// ```compile_fail
    /// # fn f(gradients: &mut commstream::DeviceBuckets<f32>, world: &commstream::Communicator) -> commstream::Result<()> {
    /// // Perhaps the stream has not reached the end of the step before.
    /// let gradient = gradients.gradient(0)?; // error: it is unsafe
    /// commstream::scope(|s| s.on_device().broadcast(world, gradient, 0).map(drop))
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// Everything that uses it is put in an order with the steps: behind [`DeviceBuckets::wait`] of the step before, on its stream, and before
    /// [`DeviceBuckets::ready`], on its stream. Kernels on that stream are. The calls of [`OnDevice`](crate::OnDevice) are if
    /// [`Stream::before`] and [`Request::before_stream`](crate::Request::before_stream) say so.
    pub unsafe fn gradient(&mut self, i: usize) -> Result<DeviceSliceMut<'_, T>> {
        inside::may_start()?;
        if self.ready.has(i)? {
            return Err(not_yours(i));
        }
        let mut at = std::ptr::null_mut();
        // SAFETY: the buckets are open.
        self.check(unsafe { ffi::comm_buckets_data(self.raw, i, &mut at) })?;
        // SAFETY: it lives as long as the buckets. The order is the caller's.
        Ok(unsafe { DeviceSliceMut::new(at.cast(), self.lengths[i]) })
    }

    /// Reports that a gradient of this step is written when everything on the stream so far is done.
    ///
    /// [`ErrorKind::Full`]: nothing happened; call [`Communicator::progress`] and this again.
    pub fn ready(&mut self, i: usize, stream: Stream) -> Result<()> {
        inside::may_start()?;
        self.ready.has(i)?;
        // SAFETY: the buckets are open, and the stream exists.
        self.check(unsafe { ffi::comm_buckets_ready_stream(self.raw, i, stream.raw()) })?;
        self.ready.0[i] = true;
        Ok(())
    }

    /// Ends the step: work that is put on the stream afterwards starts when all gradients have their results. The next step may begin at
    /// once, on the same stream.
    ///
    /// [`ErrorKind::Full`]: the step goes on; call [`Communicator::progress`] and this again. If a reduction fails later, the next call
    /// returns its error; call [`Communicator::sync_all`] before results leave the device.
    pub fn wait(&mut self, stream: Stream) -> Result<()> {
        inside::may_start()?;
        // SAFETY: as for ready.
        self.check(unsafe { ffi::comm_buckets_wait_stream(self.raw, stream.raw()) })?;
        self.ready.0.fill(false);
        Ok(())
    }
}

impl<T: Element> Drop for DeviceBuckets<T> {
    fn drop(&mut self) {
        free(self.raw, &self.own);
    }
}
