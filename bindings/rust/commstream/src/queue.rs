use std::marker::PhantomData;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use commstream_sys as ffi;

use crate::handle::{Call, Handle};
use crate::{Communicator, Error, ErrorKind, Result};

/// What takes the calls of a scope: a [`Communicator`], which starts them, or a [`Recorder`].
pub trait Queue: private::Sealed {
    /// The rank of this process.
    fn rank(&self) -> i32;
    /// The number of ranks.
    fn size(&self) -> i32;
    #[doc(hidden)]
    fn ranks(&self) -> usize {
        self.size().max(1) as usize
    }
}

pub(crate) use private::{Recording, Taken};

pub(crate) mod private {
    use super::*;

    pub trait Sealed {
        #[doc(hidden)]
        fn handle(&self) -> &Arc<Handle>;
        /// `scope` is the one that has the buffers of the call.
        #[doc(hidden)]
        fn take(&self, scope: *const (), call: impl Call) -> Result<Taken>;
    }

    /// What became of a call.
    pub enum Taken {
        Started(ffi::comm_request),
        Recorded(Recording),
    }

    /// What a call was recorded in.
    #[derive(Clone, Copy, PartialEq)]
    pub enum Recording {
        Plan,
        Group,
    }
}

impl Queue for Communicator {
    fn rank(&self) -> i32 {
        Communicator::rank(self)
    }
    fn size(&self) -> i32 {
        Communicator::size(self)
    }
}

impl private::Sealed for Communicator {
    fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
    fn take(&self, _scope: *const (), call: impl Call) -> Result<Taken> {
        self.handle.start(call).map(Taken::Started)
    }
}

/// What a plan or group gives to the function that records it. It takes calls of a scope, and only on its thread.
pub struct Recorder {
    raw: *mut ffi::comm_communicator,
    of: Communicator,
    scope: *const (),
    what: Recording,
    thread: PhantomData<*const ()>,
}

impl Recorder {
    /// Lets `record` make its calls. If it returns an error or panics, the whole plan or group is refused at its end, which the caller
    /// must call before it goes on with the panic.
    pub(crate) fn record(
        c: &Communicator,
        raw: *mut ffi::comm_communicator,
        what: Recording,
        scope: *const (),
        record: impl FnOnce(&Recorder) -> Result<()>,
    ) -> std::thread::Result<Result<()>> {
        let recorder = Recorder { raw, of: c.clone(), scope, what, thread: PhantomData };
        let recorded = catch_unwind(AssertUnwindSafe(|| record(&recorder)));
        if !matches!(recorded, Ok(Ok(()))) {
            // SAFETY: a root that no communicator has is refused, and no buffer is touched.
            let _ = unsafe { ffi::comm_broadcast(raw, std::ptr::null_mut(), 0, ffi::COMM_BYTE, -1, std::ptr::null_mut()) };
        }
        recorded
    }
}

impl Queue for Recorder {
    fn rank(&self) -> i32 {
        self.of.rank()
    }
    fn size(&self) -> i32 {
        self.of.size()
    }
}

impl private::Sealed for Recorder {
    fn handle(&self) -> &Arc<Handle> {
        &self.of.handle
    }
    fn take(&self, scope: *const (), call: impl Call) -> Result<Taken> {
        if scope != self.scope {
            return Err(Error::new(
                ErrorKind::State,
                "this recorder is of another scope; its calls are made with the scope that came with it",
            ));
        }
        // SAFETY: nothing runs before the plan or group starts, which has the buffers by then.
        unsafe { self.of.handle.make(call, self.raw, std::ptr::null_mut()) }.map(|()| Taken::Recorded(self.what))
    }
}
