//! Plans whose calls depend on each other, what their receives got, and how they fail.
use std::sync::mpsc::channel;
use std::time::Duration;

use commstream::{scope, Config, ErrorKind, Op};

mod world;
use world::{kind, run, text, with, with_ranks};

#[test]
fn calls_use_the_output_of_earlier_calls() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let blocks = vec![0i64; 600 * size as usize];
        let mut plan = c.plan((blocks, vec![0i64; 600]), |s, recorder, (blocks, one)| {
            let all = s.reduce_scatter_in_place(recorder, blocks, Op::Sum)?.again()?;
            let all = s.allgather_in_place(recorder, all)?.again()?;
            let all = s.allreduce_in_place(recorder, all, Op::Sum)?.again()?;
            s.scatter(recorder, (rank == 0).then_some(&*all), one, 0).map(drop)
        })?;
        for step in 1..=3 {
            plan.buffers()?.0.fill(step * i64::from(rank + 1));
            plan.start()?;
            let sum = step * i64::from(size * (size + 1) / 2 * size);
            let (blocks, one) = plan.buffers()?;
            assert_eq!((blocks[0], blocks[blocks.len() - 1], one[599]), (sum, sum, sum));
        }
        c.barrier()
    });
}

/// Each rank gives on what it got.
#[test]
fn messages_use_the_output_of_earlier_messages() {
    with_ranks(|c| {
        let (rank, last) = (c.rank(), c.size() - 1);
        let mut plan = c.plan([0u32; 700], |s, recorder, hand| {
            let mut hand = &mut hand[..];
            if rank > 0 {
                hand = s.receive(recorder, hand, Some(rank - 1), Some(1))?.again()?;
            }
            if rank < last {
                let _ = s.send(recorder, hand, rank + 1, 1)?;
            }
            Ok(())
        })?;
        for step in 0..20 {
            plan.buffers()?.fill(if rank == 0 { step } else { 99 });
            plan.start()?;
            assert_eq!(plan.buffers()?[..], [step; 700]);
        }
        assert_eq!(plan.statuses()?.count(), usize::from(rank > 0));
        c.barrier()
    });
}

/// Whoever ignores the error of a call gets it from the plan, or the group, and nothing starts.
#[test]
fn an_ignored_error_refuses_what_is_recorded() {
    with_ranks(|c| {
        let plan = c.plan((vec![1u8; 3], vec![0; 2], vec![0; 1]), |s, recorder, (three, two, one)| {
            let _ = s.allreduce(recorder, three, two, Op::Sum);
            s.broadcast(recorder, one, 0).map(drop)
        });
        assert_eq!(kind(plan.map(drop)), ErrorKind::Argument);
        let (three, mut two, mut one) = ([1u8; 3], [0; 2], [1; 1]);
        let group = scope(|s| {
            let request = s.group(c, |recorder| {
                let _ = s.allreduce(recorder, &three, &mut two, Op::Sum);
                s.allreduce_in_place(recorder, &mut one, Op::Sum).map(drop)
            })?;
            request.wait()
        });
        assert_eq!(kind(group), ErrorKind::Argument);
        assert_eq!(one, [1]);
        c.barrier()
    });
}

/// Buffers of which there are many.
#[test]
fn vectors_of_vectors() {
    with_ranks(|c| {
        let mut plan = c.plan(vec![vec![1u32; 10], vec![2; 2000]], |s, recorder, all| {
            all.iter_mut().try_for_each(|one| s.allreduce_in_place(recorder, one, Op::Prod).map(drop))
        })?;
        plan.start()?;
        let all = plan.buffers()?;
        assert_eq!((all[0][9], all[1][1999]), (1, 1 << c.size()));
        c.barrier()
    });
}

#[test]
fn only_what_a_plan_recorded_is_lent_again() {
    with(1, &|c| {
        let (mut a, mut b) = ([1u8], [2u8]);
        scope(|s| {
            assert_eq!(kind(s.broadcast(c, &mut a, 0)?.again().map(drop)), ErrorKind::State);
            let group = s.group(c, |recorder| {
                assert_eq!(kind(s.broadcast(recorder, &mut b, 0)?.again().map(drop)), ErrorKind::State);
                Ok(())
            })?;
            group.wait()
        })?;
        let other = c.duplicate()?;
        let refused = c.plan([3u8; 1], |s, _recorder, x| s.broadcast(&other, x, 0)?.again().map(drop));
        assert_eq!(kind(refused.map(drop)), ErrorKind::State);
        Ok(())
    });
}

#[test]
fn a_wait_has_the_errors_of_receives() {
    with_ranks(|c| {
        let me = c.rank();
        let mut plan = c.plan(([0u16; 2], [0u16; 8], [0i32; 1]), |s, recorder, (short, long, sum)| {
            let _ = s.receive(recorder, short, Some(me), Some(1))?;
            let _ = s.allreduce_in_place(recorder, sum, Op::Sum)?;
            let _ = s.receive(recorder, long, Some(me), None)?;
            Ok(())
        })?;
        assert!(plan.statuses()?.all(|status| status.is_none()));
        for step in 0..4u16 {
            plan.buffers()?.2[0] = 1;
            plan.start()?;
            c.send(&vec![step; 2 + usize::from(step % 2)], me, 1)?; // every second one is too long
            c.send(&[step; 8][..usize::from(step)], me, 7)?;
            if step % 2 == 1 {
                let said = plan.wait().unwrap_err();
                assert_eq!(said.kind, ErrorKind::Truncated);
                assert!(said.text.contains("receive 0 of the plan: the message has 6 bytes"), "{said}");
                assert_eq!(kind(plan.wait()), ErrorKind::Truncated);
                assert_eq!(kind(c.sync()), ErrorKind::Truncated);
            } else {
                plan.wait()?;
            }
            let counts: Vec<_> = plan.statuses()?.map(|status| status.map(|status| status.count::<u16>())).collect();
            assert_eq!(counts, [(step % 2 == 0).then_some(2), Some(usize::from(step))]);
            let (_, long, sum) = plan.buffers()?;
            assert_eq!((long.iter().filter(|x| **x == step).count() >= usize::from(step), sum[0]), (true, c.size()));
        }
        c.barrier()
    });
}

#[test]
fn a_receive_of_a_plan_has_a_deadline() {
    let config = Config::new().backend("local").operation_timeout(Duration::from_secs(1));
    run(config.open_ranks(1).unwrap(), &|c| {
        let mut plan = c.plan([0u8; 2], |s, recorder, x| s.receive(recorder, x, Some(0), Some(1)).map(drop))?;
        plan.start()?;
        assert_eq!(kind(plan.wait()), ErrorKind::Dependency);
        assert_eq!(kind(c.sync()), ErrorKind::Timeout);
        plan.start()?;
        c.send(&[5u8; 2], 0, 1)?;
        assert_eq!(plan.into_buffers()?, [5; 2]);
        Ok(())
    });
}

/// The error of a start is told until the next one, and the buffers come back.
#[test]
fn a_plan_keeps_its_error() {
    with_ranks(|c| {
        let twin = c.duplicate()?;
        let never = |tag| {
            let mut plan = twin.plan(vec![7u8; 2], |s, recorder, x| s.receive(recorder, x, Some(twin.rank()), Some(tag)).map(drop))?;
            plan.start()?;
            commstream::Result::Ok(plan)
        };
        let (mut told, untold, dropped) = (never(1)?, never(2)?, never(3)?);
        c.barrier()?;
        twin.revoke()?;
        drop(dropped); // at once
        assert_eq!(kind(told.wait()), ErrorKind::Revoked);
        assert_eq!(kind(told.wait()), ErrorKind::Revoked);
        let (done, ended) = channel();
        told.on_complete(move |result| done.send(result).unwrap())?;
        assert_eq!(kind(ended.recv().unwrap()), ErrorKind::Revoked);
        assert_eq!(told.buffers()?[..], [7; 2]);
        assert!(!text(told.start()).is_empty());
        assert_eq!(told.into_buffers()?, [7; 2]);
        assert_eq!(kind(untold.into_buffers().map(drop)), ErrorKind::Revoked);
        c.barrier()
    });
}
