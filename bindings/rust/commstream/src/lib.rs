//! Asynchronous communication between ranks: collectives, messages and windows that overlap with compute.
//!
//! This is the safe interface to the C library [commstream](https://crates.io/crates/commstream-sys), which it links. A rank is a process
//! that a launcher started (`comm-run -n 4 program`, `mpirun`, `srun`, `torchrun`), or a thread ([`Config::open_ranks`]).
//!
//! ```
//! # fn main() -> commstream::Result<()> {
//! use commstream::{Communicator, Op};
//!
//! let world = Communicator::open()?;
//! let mine = [f64::from(world.rank())];
//! let mut sum = [0.0];
//! world.allreduce(&mine, &mut sum, Op::Sum)?;
//! println!("rank {} of {}: {}", world.rank(), world.size(), sum[0]);
//! # Ok(()) }
//! ```
//!
//! There are three ways to make a call:
//!
//! | | the buffers are | for |
//! |---|---|---|
//! | a method of [`Communicator`] | borrowed until it returns | results that are needed at once |
//! | a method of [`Scope`], in [`scope()`] | borrowed until the scope ends | overlap with what follows |
//! | the same in [`start`], or in [`Communicator::plan`] | owned by the [`Task`] or [`Plan`] | event loops; work that runs again and again |
//!
//! **Errors.** Every call returns a [`Result`]; an [`Error`] names the rank and the operation. If a rank dies, every operation with it ends
//! with [`ErrorKind::Peer`] on all others, which may then [`shrink`](Communicator::shrink) and go on.
//!
//! **Threads.** Any thread may call anything. Operators of the program's own ([`Operator`]) and callbacks ([`Request::on_complete`]) run on any
//! thread that makes progress; what may be done there is said at each.
//!
//! [`functions`] has all functions of the C library, and what they are here.
#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod blocking;
mod buckets;
mod buffers;
mod callback;
mod calls;
mod communicator;
mod config;
mod device;
mod device_calls;
mod duplicate;
mod element;
mod error;
mod event;
mod handle;
mod inside;
mod inspect;
mod lent;
mod operator;
mod queue;
mod request;
mod scope;
mod span;
mod started;
mod started_in_place;
mod task;
mod window;

pub use buckets::{BucketOptions, Buckets, DeviceBuckets};
pub use buffers::Buffers;
pub use calls::Layout;
pub use communicator::{Communicator, Info, Place, Status};
pub use config::{Callbacks, Config, Id, LogLevel, Order, Progress};
pub use device::{DeviceSlice, DeviceSliceMut, Stream};
pub use device_calls::OnDevice;
pub use duplicate::DuplicateOptions;
pub use element::{Bfloat16, Bool, Complex, Element, Float8E4M3, Float8E5M2, Half, Indexed, Op};
pub use error::{Error, ErrorKind, Result};
pub use event::Event;
pub use inspect::{algorithms, backends, options, version, Algorithm, Backend, Call, Operation, OptionInfo, Peer, Statistics};
pub use lent::{Lent, LentBytes, Output, Received};
pub use operator::{Operator, Reduce};
pub use queue::{Queue, Recorder};
pub use request::{wait_any, Request};
pub use scope::{scope, Scope};
pub use task::{start, Plan, Task};
pub use window::{Placement, Window};

pub use commstream_sys;

/// No limit, for methods that take a time.
pub const FOREVER: std::time::Duration = std::time::Duration::MAX;

pub(crate) fn nanoseconds(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[doc = include_str!("../FUNCTIONS.md")]
pub mod functions {
    #[cfg(doc)]
    use crate::*;
}

/// The scripts of the manual's page are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/getting-started/rust.md")]
struct Page;
