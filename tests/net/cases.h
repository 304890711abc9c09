/* Cases that are in another file than the main of their program. */
#ifndef TESTS_NET_CASES_H
#define TESTS_NET_CASES_H

/* test_secret_sources.c */
void sources(void **state);

#endif
