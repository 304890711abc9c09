/* Communicators that begin just below 2^32, as if they had lived for long: what counts operations in 32 bits must wrap rightly. The linker
 * puts this before the engine's own function. */
#include "sim/inside.h"

#include "comm/body.h"

enum comm_result __real_body_create(struct engine *e, const struct body_config *config, void *offer, struct body **body);
enum comm_result __wrap_body_create(struct engine *e, const struct body_config *config, void *offer, struct body **body);
enum comm_result __wrap_body_create(struct engine *e, const struct body_config *config, void *offer, struct body **body)
{
    enum comm_result r = __real_body_create(e, config, offer, body);

    if (r == COMM_OK && sim.config.first_number)
        (*body)->sequence = (*body)->compared = sim.config.first_number - 1;
    return r;
}
