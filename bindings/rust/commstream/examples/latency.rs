//! What a call costs: allreduces of 8 bytes, one after another, and through a scope.
//!
//! comm-run -n 2 target/release/examples/latency
use std::time::Instant;

use commstream::{Communicator, Op, Result};

const ROUNDS: u32 = 200_000;

fn main() -> Result<()> {
    let world = Communicator::open()?;
    let (one, mut sum) = ([1.0f64], [0.0f64]);
    let mut best = [f64::MAX; 2];
    for _ in 0..5 {
        world.barrier()?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            world.allreduce(&one, &mut sum, Op::Sum)?;
        }
        best[0] = best[0].min(begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
        world.barrier()?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            commstream::scope(|s| s.allreduce(&world, &one, &mut sum, Op::Sum)?.wait().map(drop))?;
        }
        best[1] = best[1].min(begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    if world.rank() == 0 {
        println!("allreduce of 8 bytes on {} ranks: blocking {:.0} ns, in a scope {:.0} ns", world.size(), best[0], best[1]);
    }
    Ok(())
}
