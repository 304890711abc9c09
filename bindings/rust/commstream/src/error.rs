use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

use commstream_sys as ffi;

/// What every call of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of error it is: one for each `COMM_ERR_...` of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong; the text names it, its value and what was expected.
    Argument,
    /// Not allowed now, such as a wait for a request that was only recorded.
    State,
    /// Not supported by this build, backend, type and operator, or set of machines.
    Unsupported,
    /// A queue or table is full: nothing was started. Make progress and call again.
    Full,
    /// Out of memory.
    Memory,
    /// A system call failed; [`Error::system_errno`] says how.
    System,
    /// The configuration is missing or wrong; the text names every wrong value.
    Config,
    /// A peer did not prove its identity: secret, job, version or rank.
    Auth,
    /// The operation's own deadline passed.
    Timeout,
    /// A rank died, stopped or cannot be reached; [`Error::rank`] says which.
    Peer,
    /// Ranks made different calls; the text names both.
    Mismatch,
    /// A message is longer than its receive.
    Truncated,
    /// Cancelled before it matched.
    Cancelled,
    /// [`Communicator::abort`](crate::Communicator::abort) was called, here or on another rank.
    Aborted,
    /// The communicator was revoked: agree, shrink or close it.
    Revoked,
    /// Something that it waited for had failed.
    Dependency,
    /// MPI, NCCL or CUDA reported an error; [`Error::backend_code`] has its code.
    Backend,
    /// Data is corrupt, or a member sent what no member may send.
    Corrupt,
    /// Closed: here, or by the peer that is named.
    Closed,
    /// Called in a forked child.
    Forked,
    /// Another rank refused its own call; it and its reason are named.
    Refused,
    /// A cycle of operations and events waits for itself; the text names it.
    Deadlock,
    /// An event was dropped or recorded again while work waited for [`Event::set`](crate::Event::set).
    Abandoned,
    /// A result that this crate does not know: the C library is newer.
    Other(i32),
}

const KINDS: [ErrorKind; 23] = [
    ErrorKind::Argument,
    ErrorKind::State,
    ErrorKind::Unsupported,
    ErrorKind::Full,
    ErrorKind::Memory,
    ErrorKind::System,
    ErrorKind::Config,
    ErrorKind::Auth,
    ErrorKind::Timeout,
    ErrorKind::Peer,
    ErrorKind::Mismatch,
    ErrorKind::Truncated,
    ErrorKind::Cancelled,
    ErrorKind::Aborted,
    ErrorKind::Revoked,
    ErrorKind::Dependency,
    ErrorKind::Backend,
    ErrorKind::Corrupt,
    ErrorKind::Closed,
    ErrorKind::Forked,
    ErrorKind::Refused,
    ErrorKind::Deadlock,
    ErrorKind::Abandoned,
];

impl ErrorKind {
    pub(crate) fn of(result: ffi::comm_result) -> ErrorKind {
        KINDS.get(result.unsigned_abs() as usize - 1).copied().filter(|_| result < 0).unwrap_or(ErrorKind::Other(result))
    }
}

/// An error, with what the C library knows about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// The rank that failed, if it is known.
    pub rank: Option<i32>,
    /// The rank that noticed, if it is known.
    pub peer: Option<i32>,
    /// The sequence number of the collective that failed, if there is one.
    pub sequence: Option<u64>,
    /// `errno` of a system call that failed, or 0.
    pub system_errno: i32,
    /// The error code of MPI, NCCL or CUDA, or 0.
    pub backend_code: i32,
    /// The name of the operation; empty if there is none.
    pub operation: String,
    /// The kind of the cause, in a word or two; empty if it is not known.
    pub cause: String,
    /// What happened, and what was expected.
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl std::error::Error for Error {}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            rank: None,
            peer: None,
            sequence: None,
            system_errno: 0,
            backend_code: 0,
            operation: String::new(),
            cause: String::new(),
            text: text.into(),
        }
    }

    /// A result without a communicator that knows more.
    pub(crate) fn plain(result: ffi::comm_result) -> Error {
        // SAFETY: the function returns a text that is never freed, for any number.
        let text = unsafe { CStr::from_ptr(ffi::comm_result_text(result)) };
        Error::new(ErrorKind::of(result), text.to_string_lossy())
    }

    /// The error of a call or request of `c`, with its detail if the detail is of this error.
    pub(crate) fn of(c: *mut ffi::comm_communicator, result: ffi::comm_result) -> Error {
        let mut detail = ffi::comm_error { size: std::mem::size_of::<ffi::comm_error>(), ..Default::default() };
        let mut error = Error::plain(result);
        // SAFETY: the handle is open or closed, and the structure has its size.
        if unsafe { ffi::comm_error_detail(c, &mut detail) } != ffi::COMM_OK || detail.result != result {
            return error;
        }
        error.rank = Some(detail.rank).filter(|rank| *rank >= 0);
        error.peer = Some(detail.peer).filter(|peer| *peer >= 0);
        error.sequence = Some(detail.sequence).filter(|sequence| *sequence != 0);
        error.system_errno = detail.system_errno;
        error.backend_code = detail.backend_code;
        error.operation = text_of(&detail.operation);
        error.cause = text_of(&detail.cause);
        error.text = text_of(&detail.text);
        error
    }
}

/// A text that ends with a zero byte, or fills its array.
pub(crate) fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// So that a program's own errors can leave a scope, a group or a plan.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        let mut own = Error::new(ErrorKind::System, error.to_string());
        own.system_errno = error.raw_os_error().unwrap_or(0);
        own
    }
}
