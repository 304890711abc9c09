/* What values a word had, which of them may still be read, and what a thread knows. Private to the explorer. */
#ifndef MODEL_MEMORY_H
#define MODEL_MEMORY_H

#include "model/explore.h"

enum { MEMORY_WORDS = 192, MEMORY_VALUES = 96, MEMORY_ARENA = 4 << 20, MEMORY_READS = 64 };

/* Per word, the oldest value that may still be read; per thread, how many of its steps happened before. */
struct view {
    uint16_t at[MEMORY_WORDS];
    uint16_t clock[MODEL_THREADS];
};
struct value {
    uint64_t value;
    struct view released; /* what an acquiring reader learns */
};
struct word {
    uintptr_t address;
    uint32_t bytes, count, first; /* values [first, count) exist */
    uint16_t last_sc;             /* the last value that a seq_cst operation stored */
    bool written;                 /* by a plain write since the last atomic access: all older values are gone */
    struct value values[MEMORY_VALUES];
};

enum change { CHANGE_SET, CHANGE_ADD, CHANGE_SUB, CHANGE_AND, CHANGE_OR, CHANGE_XOR, CHANGE_COMPARE };

/* The next operation of a thread, known before it runs. */
struct op {
    enum model_kind kind;
    enum change change;
    bool sc;
    int32_t order, order_failed;
    uint32_t bytes;
    uintptr_t address, site;
    uint64_t operand, expected;
    bool succeeded;
};

void memory_reset(uint32_t threads);
bool memory_owns(uintptr_t address);
void *memory_take(size_t bytes, size_t align);
void memory_keep(void); /* each run begins with the arena's contents of this moment */
void memory_restore(void);

uint64_t memory_atomic(uint32_t thread, struct op *op);
uint64_t memory_constant(const struct op *op);
void memory_fence(uint32_t thread, int order);
void memory_signal_fence(uint32_t thread);
void memory_barrier(uint32_t thread);
void memory_plain(uint32_t thread, uintptr_t address, size_t bytes, bool write);
bool memory_changed(uint32_t thread); /* whether something that it has read since memory_refresh has changed */
void memory_refresh(uint32_t thread);
void memory_meet(uint32_t thread, struct view *at, bool give); /* through a lock of the kernel */

/* names.c */
const char *memory_name(uintptr_t address);
bool memory_is_constant(const struct op *op); /* a load of it is not a step; a store to it is an error */

/* In explore.c: chooses one of n. */
uint32_t explore_choose(uint32_t n);

#endif
