/* Tests of conform_collectives, whose main is in collectives.c. */
#ifndef CONFORM_ROWS_H
#define CONFORM_ROWS_H

void collectives_forced_algorithms(void **state);
void collectives_forced_algorithms_minimal(void **state);

#endif
