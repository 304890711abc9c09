/* The world of the tests of staging (test_staged.c, test_staged_faults.c): three ranks, with device memory for a sum on each. */
#ifndef STAGED_H
#define STAGED_H

#include "conform/rig.h"

enum { RANKS = 3, N = 1000 };

/* Elements of an operation in parts of 1 MiB: more parts than run at once. */
static inline size_t staged_long(void)
{
    return selected(9 << 20, 9 << 20, 5 << 20) / sizeof(float) + 77;
}

extern struct rig staged_rig;
extern float *staged_in[RANKS], *staged_out[RANKS]; /* in device memory */

void staged_take(size_t n); /* takes the memory, for n elements */
void staged_give(void);
float staged_value(int r, size_t i); /* values whose sum depends on the order */
void staged_fill(size_t n);          /* with these values */
/* Takes and fills the memory, and opens the world; closes it and gives the memory back. */
void staged_open(size_t n);
void staged_close(void);
uint32_t staged_flags(struct comm_request q);
/* The device's bytes must be the host's. */
void staged_same(const void *device, const void *host, size_t bytes);
/* The sum of what is in device memory, by the host; its bits must be equal to the device's. The caller frees it. */
float *staged_host_sum(size_t n);

/* Cases of test_staged_faults.c. */
void a_fault_at_every_call(void **state);
void a_fault_at_every_call_of_a_message(void **state);
void faults_of_a_device_that_is_late(void **state);
void an_abort_while_the_device_stands(void **state);
void a_deadline_while_the_device_stands(void **state);
void faults_of_an_allgather_in_parts(void **state);
void faults_of_uneven_blocks_in_parts(void **state);
void an_abort_in_the_middle_of_a_sum(void **state);
void an_abort_in_the_middle_of_an_allgather(void **state);
void a_deadline_in_the_middle_of_an_allgather(void **state);
void an_abort_in_the_middle_of_uneven_blocks(void **state);

#endif
