//! The C functions, structures and constants of commstream, as its headers declare them. What each does is said there, and in the manual
//! pages that the C library installs (`man collective.h`). The crate `commstream` has a safe interface to most of them.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]

include!("bindings.rs");

/// For `timeout_ns`: no limit.
pub const COMM_FOREVER: i64 = i64::MAX;
/// For `timeout_ns`: the one that the call documents.
pub const COMM_DEFAULT_TIMEOUT: i64 = -1;
/// For `*bytes` of `comm_broadcast_bytes` on the root: it has nothing to send, and the call fails on all ranks.
pub const COMM_ROOT_FAILED: usize = usize::MAX;
/// What `comm_wait_any` stores if no request was left.
pub const COMM_NO_INDEX: usize = usize::MAX;
/// For `in` (or `out` of a scatter): the input is in the output buffer.
pub const COMM_IN_PLACE: *mut std::os::raw::c_void = usize::MAX as *mut std::os::raw::c_void;
