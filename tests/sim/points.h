/*
 * Included before every source of the core that the simulator runs: each atomic operation becomes a point at which the
 * scheduler may run another thread, or end a rank. Between points no effect of another thread is visible, so these are
 * all interleavings except those of a weak memory order. The count-down keeps the cost at one instruction.
 */
#ifndef TESTS_SIM_POINTS_H
#define TESTS_SIM_POINTS_H

#include <stdatomic.h>
#include <stdint.h>

extern int32_t sim_budget;
void sim_preempt(void);

static inline void sim_step(void)
{
    if (__builtin_expect(--sim_budget < 0, 0))
        sim_preempt();
}

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit

#define atomic_load(p) atomic_load_explicit(p, memory_order_seq_cst)
#define atomic_compare_exchange_strong(p, e, d) atomic_compare_exchange_strong_explicit(p, e, d, memory_order_seq_cst, memory_order_seq_cst)

#ifdef __clang__
#    define atomic_load_explicit(p, m) (sim_step(), __c11_atomic_load(p, m))
#    define atomic_store_explicit(p, v, m) (sim_step(), __c11_atomic_store(p, v, m))
#    define atomic_exchange_explicit(p, v, m) (sim_step(), __c11_atomic_exchange(p, v, m))
#    define atomic_fetch_add_explicit(p, v, m) (sim_step(), __c11_atomic_fetch_add(p, v, m))
#    define atomic_fetch_sub_explicit(p, v, m) (sim_step(), __c11_atomic_fetch_sub(p, v, m))
#    define atomic_fetch_or_explicit(p, v, m) (sim_step(), __c11_atomic_fetch_or(p, v, m))
#    define atomic_fetch_and_explicit(p, v, m) (sim_step(), __c11_atomic_fetch_and(p, v, m))
#    define atomic_compare_exchange_strong_explicit(p, e, d, s, f) (sim_step(), __c11_atomic_compare_exchange_strong(p, e, d, s, f))
#else
#    define atomic_load_explicit(p, m) (sim_step(), __atomic_load_n(p, m))
#    define atomic_store_explicit(p, v, m) (sim_step(), __atomic_store_n(p, v, m))
#    define atomic_exchange_explicit(p, v, m) (sim_step(), __atomic_exchange_n(p, v, m))
#    define atomic_fetch_add_explicit(p, v, m) (sim_step(), __atomic_fetch_add(p, v, m))
#    define atomic_fetch_sub_explicit(p, v, m) (sim_step(), __atomic_fetch_sub(p, v, m))
#    define atomic_fetch_or_explicit(p, v, m) (sim_step(), __atomic_fetch_or(p, v, m))
#    define atomic_fetch_and_explicit(p, v, m) (sim_step(), __atomic_fetch_and(p, v, m))
#    define atomic_compare_exchange_strong_explicit(p, e, d, s, f) (sim_step(), __atomic_compare_exchange_n(p, e, d, 0, s, f))
#endif

#endif
