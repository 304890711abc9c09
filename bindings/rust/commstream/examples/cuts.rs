//! Stochastic dual dynamic programming, as far as it communicates: in each stage of the backward pass every rank makes cuts of its own
//! scenarios and sends them to all others, while it solves the next stage with the cuts that it has. A rank sends only cuts that are better
//! than those that it has, so the others do not know how many: the lengths go first. Cuts are in the order of the scenarios, so the result
//! has the same bits on any number of ranks.
//!
//! comm-run -n 4 target/debug/examples/cuts
use commstream::{Communicator, Layout, Op, Result};

const STAGES: usize = 12;
const STATES: usize = 6;
const SCENARIOS: usize = 20;

/// A lower bound of the cost to go: `height + slope * state`.
#[derive(Clone, Copy, Default)]
struct Cut {
    height: f64,
    slope: [f64; STATES],
}

/// Stands for a linear program: the best of the cuts at a trial point, and the cut that its duals give, if that is better there.
fn solve(stage: usize, scenario: usize, cuts: &[Cut]) -> Option<Cut> {
    let point: [f64; STATES] = std::array::from_fn(|i| ((stage * 7 + scenario * 3 + i * 5) % 11) as f64 / 11.0);
    let value = |cut: &Cut| cut.height + cut.slope.iter().zip(&point).map(|(a, x)| a * x).sum::<f64>();
    let best = cuts.iter().map(value).fold(0.0, f64::max);
    let slope = std::array::from_fn(|i| (1.0 + (scenario + i) as f64 / 10.0) * (1.0 - point[i]));
    let cut = Cut { height: 1.0 + 0.7 * best, slope };
    (value(&cut) > best).then_some(cut)
}

fn numbers(cuts: &[Cut]) -> Vec<f64> {
    cuts.iter().flat_map(|cut| std::iter::once(cut.height).chain(cut.slope)).collect()
}

fn cuts(numbers: &[f64]) -> Vec<Cut> {
    numbers.chunks(1 + STATES).map(|of| Cut { height: of[0], slope: of[1..].try_into().expect("a whole cut") }).collect()
}

fn main() -> Result<()> {
    let world = Communicator::open()?;
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let mine = SCENARIOS * rank / ranks..SCENARIOS * (rank + 1) / ranks;
    let solve_mine = |stage, known: &[Cut]| mine.clone().filter_map(|scenario| solve(stage, scenario, known)).collect::<Vec<_>>();
    let mut known = Vec::new();
    let mut made = solve_mine(STAGES, &known);
    for stage in (0..STAGES).rev() {
        let sent = numbers(&made);
        let mut lengths = vec![0; ranks];
        world.allgather(&[sent.len()], &mut lengths)?;
        let mut received = vec![0.0; lengths.iter().sum()];
        commstream::scope(|s| {
            let exchange = s.allgather_v(&world, &sent, &mut received, Layout::dense(&lengths))?;
            made = solve_mine(stage, &known); // while the cuts are under way
            known.extend(cuts(exchange.wait()?));
            Ok(())
        })?;
    }
    // The lower bound of all ranks, and whether all have the same cuts.
    let bound = known.iter().map(|cut| cut.height).fold(0.0, f64::max);
    let mut bounds = [bound, -bound];
    world.allreduce_in_place(&mut bounds, Op::Max)?;
    assert_eq!(bounds[0], -bounds[1], "ranks have different cuts");
    if rank == 0 {
        println!("{STAGES} stages, {} cuts: lower bound {bound:.15e}", known.len());
    }
    Ok(())
}
