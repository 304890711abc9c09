//! A scope that goes on for long takes no more and more memory.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use commstream::{scope, Communicator, Result};

/// Counts the bytes of this crate and of the program; the C library has its own.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn requests_that_were_waited_for_are_forgotten() -> Result<()> {
    let world = Communicator::open()?;
    let (mut to, from) = ([0u8; 8], [1u8; 8]);
    scope(|s| {
        let (mut to, mut before) = (&mut to[..], 0);
        for i in 0..3000 {
            let receive = s.receive(&world, to, Some(0), Some(1))?;
            s.send(&world, &from, 0, 1)?.wait()?;
            to = receive.wait()?.0;
            if i == 100 {
                before = BYTES.load(Ordering::Relaxed);
            }
        }
        let more = BYTES.load(Ordering::Relaxed) - before;
        assert!(more < 1000, "{more} bytes");
        Ok(())
    })
}
