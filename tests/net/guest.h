/* Ranks that meet, as threads of a test: how each is configured, and its result. */
#ifndef TESTS_NET_GUEST_H
#define TESTS_NET_GUEST_H

#include <commstream/result.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GUESTS = 4 };
#define SECOND INT64_C(1000000000)

struct guest {
    int32_t rank, ranks;
    const char *job, *address, *secret;
    int64_t patience, late;
    enum comm_result result;
    int64_t took;
    char text[400], own[64];
    bool exchanged, keyed;
};

void guest_nap(int64_t ns);
/* Finds a port that is free now. Another process may take it, but no test of ours does. NULL: this host lacks the address family. */
const char *guest_free_address(int family, char text[64]);
void guest_meet(struct guest *guests, int32_t count);
/* Makes both ranks of a world of two, for a test that changes one of them. */
void guest_pair(struct guest g[2], const char *address);
void guest_expect(const struct guest *g, enum comm_result result, const char *text);

#endif
