//! Worlds of threads, for the tests.
#![allow(dead_code)] // each test uses some of it
use std::time::Duration;

use commstream::{Communicator, Config, ErrorKind, Progress, Result};

/// Runs `body` on the ranks of a world, for each number of ranks.
pub fn with_ranks(body: impl Fn(&Communicator) -> Result<()> + Sync) {
    for ranks in 1..=4 {
        with(ranks, &body);
    }
}

pub fn with(ranks: i32, body: &(impl Fn(&Communicator) -> Result<()> + Sync)) {
    with_progress(ranks, Progress::Auto, body);
}

pub fn with_progress(ranks: i32, progress: Progress, body: &(impl Fn(&Communicator) -> Result<()> + Sync)) {
    let config = Config::new().backend("local").progress(progress).operation_timeout(Duration::from_secs(20));
    run(config.open_ranks(ranks).unwrap(), body);
}

/// Runs `body` on each communicator in a thread of its own, and closes it.
pub fn run(worlds: Vec<Communicator>, body: &(impl Fn(&Communicator) -> Result<()> + Sync)) {
    let ranks = worlds.len();
    std::thread::scope(|threads| {
        for world in worlds {
            threads.spawn(move || {
                body(&world).unwrap_or_else(|error| panic!("rank {} of {ranks}: {error}", world.rank()));
                world.close(Duration::from_secs(10)).unwrap();
            });
        }
    });
}

pub fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("an error").kind
}

pub fn text<T>(result: Result<T>) -> String {
    result.err().expect("an error").text
}
