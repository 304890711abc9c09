/* For any environment: it is refused with a text. Or rank and count are consistent, on this host and over all hosts, the job has a name,
 * and an address is HOST:PORT or the launcher's store. */
#include "fuzz/fuzz.h"

#include "base/format.h"
#include "fuzz/lines.h"
#include "team/slurm.h"
#include "team/team.h"

#include <string.h>

static int fill(const struct comm_env *env, void *at, size_t bytes)
{
    (void)env;
    memset(at, 1, bytes);
    return 0;
}

static void identity(const struct comm_env *env, struct env_identity *to)
{
    (void)env;
    *to = (struct env_identity){.pid = 501, .parent = 500};
}
static const struct comm_env env = {.lookup = fuzz_lines_lookup, .random = fill, .identity = identity};

static void a_list(const char *list)
{
    uint64_t hosts = slurm_hosts(list), tasks = 0, all = 0;
    char host[64];

    HOLD(hosts <= SLURM_HOSTS_MOST);
    HOLD(!slurm_host(list, hosts, host, sizeof host));
    if (hosts && slurm_host(list, hosts - 1, host, sizeof host))
        HOLD(host[0] && strlen(host) < sizeof host && !strpbrk(host, "[],"));
    if (slurm_tasks(list, 0, &tasks, &all))
        HOLD(all >= tasks);
}

int fuzz_launcher(const unsigned char *bytes, size_t count)
{
    struct team_launch launch = {.ranks = -7};
    char text[256];

    fuzz_lines_read(bytes, count, false);
    for (int i = 0; fuzz_lines_value(i); i++)
        a_list(fuzz_lines_value(i));
    enum comm_result r = team_launch_find(&env, &launch, text, sizeof text);
    HOLD(r == COMM_OK || r == COMM_ERR_CONFIG);
    if (r != COMM_OK) {
        HOLD(text[0] && launch.ranks == -7);
        return 0;
    }
    HOLD(!text[0] && launch.rank >= 0 && launch.rank < launch.ranks && launch.ranks <= 65535);
    HOLD(launch.local_rank >= 0 && launch.local_rank < launch.local_ranks && launch.local_ranks <= launch.ranks);
    HOLD(launch.launcher[0] && launch.why[0] && launch.job[0] && memchr(launch.job, 0, sizeof launch.job));
    HOLD(!launch.store || (base_equal(launch.launcher, "slurm") && base_equal(launch.store, "store:pmix")));
    if (strncmp(launch.address, "store:", 6) == 0) {
        HOLD(base_equal(launch.address, "store:pmi") || base_equal(launch.address, "store:pmix"));
        return 1;
    }
    const char *colon = strrchr(launch.address, ':');
    uint64_t port;
    HOLD(!launch.address[0] || (colon && colon > launch.address && memchr(launch.address, 0, sizeof launch.address)));
    HOLD(!colon || (base_parse_u64(colon + 1, &port) && port >= 1 && port <= 65535));
    return !base_equal(launch.launcher, "none");
}
