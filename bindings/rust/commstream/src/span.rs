//! Where the elements of a call are, for the C library: an address that this crate does not read, and a length.
use std::borrow::Cow;
use std::os::raw::c_void;

use commstream_sys as ffi;

use crate::Element;

/// The elements of a buffer, in memory of the host or of a device.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) at: *mut c_void,
    pub(crate) length: usize,
}

impl Span {
    pub(crate) fn new<T>(at: *const T, length: usize) -> Span {
        Span { at: at as *mut c_void, length }
    }

    /// An input: nobody writes there.
    pub(crate) fn of<T>(slice: &[T]) -> Span {
        Span::new(slice.as_ptr(), slice.len())
    }

    pub(crate) fn of_mut<T>(slice: &mut [T]) -> Span {
        Span::new(slice.as_mut_ptr(), slice.len())
    }

    /// The input of a call in place.
    pub(crate) const fn in_place(length: usize) -> Span {
        Span { at: ffi::COMM_IN_PLACE, length }
    }

    /// A buffer that this rank does not use.
    pub(crate) const NONE: Span = Span { at: std::ptr::null_mut(), length: 0 };
}

/// What the C library is told about elements: their type, and how many of that type an element is.
#[derive(Clone, Copy)]
pub struct Units {
    pub of: ffi::comm_type,
    pub each: usize,
}

impl Units {
    pub(crate) fn of<T: Element>() -> Units {
        Units { of: T::TYPE, each: T::COUNT }
    }

    /// Counts or displacements, which are given in elements.
    pub(crate) fn all<'a>(&self, counts: &'a [usize]) -> Cow<'a, [usize]> {
        if self.each == 1 {
            Cow::Borrowed(counts)
        } else {
            counts.iter().map(|count| count * self.each).collect()
        }
    }
}
