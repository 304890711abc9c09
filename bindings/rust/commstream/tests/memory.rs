//! What is left behind: memory of a long scope, and threads of a world. One test, so that nobody else makes any.
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use commstream::{scope, Communicator, Config, Op, Progress, Result};

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
fn nothing_is_left_behind() -> Result<()> {
    requests_that_were_waited_for_are_forgotten()?;
    recorders_of_panics_end()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// A recorder that never ends keeps its world, and so the threads of that.
fn recorders_of_panics_end() -> Result<()> {
    let before = threads();
    let world = Config::new().progress(Progress::Thread).open()?;
    for _ in 0..3 {
        let own = world.duplicate()?;
        let group = catch_unwind(AssertUnwindSafe(|| scope(|s| s.group(&own, |_recorder| panic!("the program's own")).map(drop))));
        let plan = catch_unwind(AssertUnwindSafe(|| {
            own.plan([0u8; 8], |s, recorder, sum| {
                let _ = s.allreduce_in_place(recorder, sum, Op::Sum)?;
                panic!("the program's own")
            })
        }));
        assert!(group.is_err() && plan.is_err());
        own.close(Duration::from_secs(10))?;
    }
    assert!(threads() > before);
    world.close(Duration::from_secs(10))?;
    let end = Instant::now() + Duration::from_secs(20);
    while threads() > before {
        assert!(Instant::now() < end, "{} threads, {before} before", threads());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

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
