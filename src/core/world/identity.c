/* The contents of a comm_id: a job, a secret, and the address at which the ranks meet. */
#include "world/communicators.h"
#include "world/open.h"

#include "base/format.h"
#include "wire/table.h"

#include <string.h>

/* Clears the secret with stores that compilers do not remove. */
void identity_wipe(struct identity *id)
{
    for (size_t i = 0; i < sizeof id->secret; i++)
        ((volatile unsigned char *)id->secret)[i] = 0;
}

/* Ranks that did not get rank 0's identity often have zeros. As a secret everybody knows these. */
bool identity_is_blank(const void *secret, size_t bytes)
{
    unsigned char any = 0;

    for (size_t i = 0; i < bytes; i++)
        any |= ((const unsigned char *)secret)[i];
    return any == 0;
}

bool identity_read(const struct comm_id *from, struct identity *id)
{
    memcpy(id, from, sizeof *id);
    id->address[sizeof id->address - 1] = 0;
    return !identity_is_blank(id->secret, sizeof id->secret);
}

/* The backend that comm_open() takes. It refuses wrong options, and says why; here they name no backend. */
static const struct wire_backend *find_backend(const struct comm_env *env, const struct comm_config *config)
{
    struct base_options options;
    char why[OPEN_TEXT_BYTES];

    if (!base_options_read(env, config->options, &options, why, sizeof why))
        return NULL;
    bool decides = config->backend && base_option_source(&options, "backend") != OPTION_FROM_ENVIRONMENT;
    return wire_backend_find(decides ? config->backend : options.backend);
}

/* Uses the given address. Without one, a world over a network gets an address of this process. */
static enum comm_result offer_address(const struct comm_env *env, const struct comm_config *config, struct identity *id, char *why)
{
    const char *address = config->address ? config->address : env->lookup(env, "COMM_ADDRESS");
    const struct wire_backend *b = find_backend(env, config);

    if (address && strlen(address) >= sizeof id->address) {
        base_copy_text(why, OPEN_TEXT_BYTES, "id_create: the address is longer than 63 characters, and an id has no place for it");
        return COMM_ERR_CONFIG;
    }
    if (address && *address) {
        base_copy_text(id->address, sizeof id->address, address);
    } else if (b && b->boot && b->boot->offer && !b->boot->offer(env, id->address, sizeof id->address)) {
        base_copy_text(why, OPEN_TEXT_BYTES, "id_create: no address of this host was found");
        return COMM_ERR_SYSTEM;
    }
    return COMM_OK;
}

static enum comm_result make_id(const struct comm_config *config, struct comm_id *id, char *why)
{
    const struct comm_env *env = wire_default_env();
    struct identity made = {.address = ""};

    if (env->start(env)) {
        base_copy_text(why, OPEN_TEXT_BYTES, "id_create: called in a forked child");
        return COMM_ERR_FORKED;
    }
    memset(id, 0, sizeof *id);
    if (env->random(env, made.job, sizeof made.job) || env->random(env, made.secret, sizeof made.secret)) {
        base_copy_text(why, OPEN_TEXT_BYTES, "id_create: no random bytes");
        return COMM_ERR_SYSTEM;
    }
    enum comm_result r = offer_address(env, config, &made, why);
    if (r == COMM_OK)
        memcpy(id, &made, sizeof *id);
    identity_wipe(&made);
    return r;
}

enum comm_result engine_id_create(const struct comm_config *given, struct comm_id *id)
{
    struct comm_config config = {.size = 0};
    char why[OPEN_TEXT_BYTES] = "id_create: id=NULL; expected room for an identity";
    enum comm_result r = open_copy_config(&config, given, why, sizeof why);

    if (r == COMM_OK)
        r = id ? make_id(&config, id, why) : COMM_ERR_ARGUMENT;
    return r == COMM_OK ? r : engine_complain(&config, r, why);
}
