/* The world of the tests of staging: all ranks are in this process, on one mock device. */
#include "staged.h"

#include "mock_everywhere.h"

#include <stdlib.h>
#include <string.h>

struct rig staged_rig;
float *staged_in[RANKS], *staged_out[RANKS];

void staged_take(size_t n)
{
    for (int r = 0; r < RANKS; r++) {
        staged_in[r] = mock_take(n * sizeof(float));
        staged_out[r] = mock_take(n * sizeof(float));
    }
}

float staged_value(int r, size_t i)
{
    return (float)((i * 2654435761u + (unsigned)r * 40503u) % 1000003) * 1e-3f;
}

void staged_fill(size_t n)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < n; i++)
            ((float *)mock_peek(staged_in[r]))[i] = staged_value(r, i);
}

void staged_give(void)
{
    for (int r = 0; r < RANKS; r++) {
        mock_give(staged_in[r]);
        mock_give(staged_out[r]);
    }
}

uint32_t staged_flags(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    return info.flags;
}

void staged_open(size_t n)
{
    staged_take(n);
    staged_fill(n);
    rig_open(&staged_rig, RANKS, NULL);
}

void staged_close(void)
{
    rig_close(&staged_rig);
    staged_give();
}

void staged_same(const void *device, const void *host, size_t bytes)
{
    CHECK(memcmp(mock_peek(device), host, bytes) == 0);
}

float *staged_host_sum(size_t n)
{
    float *mine = malloc(RANKS * n * sizeof *mine), *sum = malloc(RANKS * n * sizeof *sum);
    struct comm_request q[RANKS];

    CHECK(mine && sum);
    for (int r = 0; r < RANKS; r++) {
        memcpy(mine + (size_t)r * n, mock_peek(staged_in[r]), n * sizeof *mine);
        MUST(comm_allreduce(staged_rig.world[r], mine + (size_t)r * n, sum + (size_t)r * n, n, COMM_F32, COMM_SUM, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        CHECK(!(staged_flags(q[r]) & COMM_INFO_STAGED));
    free(mine);
    return sum;
}
