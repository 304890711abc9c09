//! A CUDA device for the tests, by the driver's own calls.
#![deny(unsafe_op_in_unsafe_fn)]
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use commstream::{DeviceSlice, DeviceSliceMut, Element, Stream};

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NOT_READY: c_uint = 600;

/// The driver's function of this name, which ends with a zero byte, as a function of the type that the caller gives it.
unsafe fn function<F: Copy>(name: &str) -> F {
    // SAFETY: the caller knows the type.
    unsafe {
        let driver = dlopen(b"libcuda.so.1\0".as_ptr().cast(), 2);
        assert!(!driver.is_null(), "no CUDA driver");
        let at = dlsym(driver, name.as_ptr().cast());
        assert!(!at.is_null(), "the driver has no {name}");
        std::mem::transmute_copy(&at)
    }
}

macro_rules! cuda {
    ($name:literal ($($value:expr => $type:ty),*)) => {{
        // SAFETY: the types are those of the driver's header.
        let result = unsafe { function::<unsafe extern "C" fn($($type),*) -> c_uint>(concat!($name, "\0"))($($value),*) };
        assert_eq!(result, 0, $name);
    }};
}

/// Makes the device of a rank current in this thread.
pub fn use_device(rank: i32) {
    let (mut count, mut context) = (0, null_mut());
    cuda!("cuInit"(0 => c_uint));
    cuda!("cuDeviceGetCount"(&mut count => *mut c_int));
    cuda!("cuDevicePrimaryCtxRetain"(&mut context => *mut *mut c_void, rank % count => c_int));
    cuda!("cuCtxPushCurrent_v2"(context => *mut c_void));
}

/// A stream with memory of the device, and memory of the host that the device reads.
pub struct Device {
    raw: *mut c_void,
}

impl Device {
    pub fn new() -> Device {
        let mut raw = null_mut();
        cuda!("cuStreamCreateWithPriority"(&mut raw => *mut *mut c_void, 1 => c_uint, 0 => c_int));
        Device { raw }
    }

    pub fn stream(&self) -> Stream {
        // SAFETY: the test drops it last.
        unsafe { Stream::from_raw(self.raw) }
    }

    /// Memory of the device, which the stream fills.
    pub fn memory<T: Element>(&self, values: &[T]) -> Memory<'_, T> {
        let bytes = std::mem::size_of_val(values);
        let (mut at, mut host) = (0u64, null_mut::<c_void>());
        cuda!("cuMemAlloc_v2"(&mut at => *mut u64, bytes => usize));
        cuda!("cuMemHostAlloc"(&mut host => *mut *mut c_void, bytes => usize, 1 => c_uint));
        let host = host.cast::<T>();
        // SAFETY: it has room for them.
        unsafe { host.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        cuda!("cuMemcpyAsync"(at => u64, host as u64 => u64, bytes => usize, self.raw => *mut c_void));
        Memory { device: self, at: at as *mut T, host, length: values.len() }
    }

    /// Copies on the stream.
    pub fn copy<T: Element>(&self, from: DeviceSlice<'_, T>, mut to: DeviceSliceMut<'_, T>) {
        assert_eq!(from.len(), to.len());
        let (to, from, bytes) = (to.as_mut_ptr() as u64, from.as_ptr() as u64, std::mem::size_of::<T>() * from.len());
        cuda!("cuMemcpyAsync"(to => u64, from => u64, bytes => usize, self.raw => *mut c_void));
    }

    pub fn sync(&self) {
        // SAFETY: the types are those of the driver's header.
        let query = unsafe { function::<unsafe extern "C" fn(*mut c_void) -> c_uint>("cuStreamQuery\0") };
        while unsafe { query(self.raw) } == NOT_READY {
            std::thread::yield_now();
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.sync();
        cuda!("cuStreamDestroy_v2"(self.raw => *mut c_void));
    }
}

pub struct Memory<'a, T> {
    device: &'a Device,
    at: *mut T,
    host: *mut T,
    length: usize,
}

impl<T: Element> Memory<'_, T> {
    pub fn slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: it lives as long, and the tests put the stream's work in order.
        unsafe { DeviceSlice::new(self.at, self.length) }
    }

    pub fn slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: as above.
        unsafe { DeviceSliceMut::new(self.at, self.length) }
    }

    /// What is there when the stream comes to it.
    pub fn read(&self) -> Vec<T> {
        let bytes = self.length * std::mem::size_of::<T>();
        cuda!("cuMemcpyAsync"(self.host as u64 => u64, self.at as u64 => u64, bytes => usize, self.device.raw => *mut c_void));
        self.device.sync();
        // SAFETY: the copy is done.
        unsafe { std::slice::from_raw_parts(self.host, self.length) }.to_vec()
    }
}

impl<T> Drop for Memory<'_, T> {
    fn drop(&mut self) {
        self.device.sync();
        cuda!("cuMemFree_v2"(self.at as u64 => u64));
        cuda!("cuMemFreeHost"(self.host.cast() => *mut c_void));
    }
}

/// An address that is no device's, for what is refused before anybody looks there.
pub fn nowhere<'a>() -> DeviceSlice<'a, f32> {
    // SAFETY: it has no elements.
    unsafe { DeviceSlice::new(null(), 0) }
}
