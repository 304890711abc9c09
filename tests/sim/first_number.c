/* Communicators whose numbers begin just below 2^32, as if they had existed for long: operation numbers in 32 bits must
 * wrap correctly. The linker puts this before the engine's own function. */
#include "sim/inside.h"

#include "comm/state.h"

enum comm_result __real_state_create(struct engine *e, const struct state_config *config, void *offer, struct comm_state **body);
enum comm_result __wrap_state_create(struct engine *e, const struct state_config *config, void *offer, struct comm_state **body);
enum comm_result __wrap_state_create(struct engine *e, const struct state_config *config, void *offer, struct comm_state **body)
{
    enum comm_result r = __real_state_create(e, config, offer, body);

    if (r == COMM_OK && sim.config.first_number)
        (*body)->sequence = (*body)->calls.compared = sim.config.first_number - 1;
    return r;
}
