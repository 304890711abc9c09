/*
 * What rank 0 publishes in a medium. A file may be one that an earlier run left, because its rank 0 was killed. Such a file names an
 * address where nobody listens any more, or another program. So what it says is believed only of a listener that knows the file's secret,
 * which no other run has; until one does, rank 0 is not there yet. If the job was given a secret, the file has none: then a listener that
 * uses another protocol is not rank 0, and one that uses this protocol and has another secret is an error.
 */
#define _GNU_SOURCE
#include "net/boot/published.h"

#include "base/format.h"
#include "net/posix/interface.h"

#include <string.h>
#include <sys/socket.h>

/* ------------------------------------------------------------------------------------------------------------ rank 0 */
enum comm_result published_write(struct boot_star *b)
{
    struct boot_place *p = b->place;
    struct sockaddr_storage own;
    socklen_t length = sizeof own;

    if (getsockname(p->held >= 0 ? p->held : b->listener, (struct sockaddr *)&own, &length) < 0)
        return star_fail_errno(b, "getsockname");
    p->meeting.port = place_port((const struct sockaddr *)&own);
    p->meeting.job = b->job;
    p->meeting.ranks = b->config.ranks;
    base_copy_text(p->meeting.host, sizeof p->meeting.host, p->host);
    if (b->config.env->random(b->config.env, &p->meeting.run, sizeof p->meeting.run))
        return boot_fail(&b->config, COMM_ERR_SYSTEM, "no randomness to know this run's meeting by");
    enum comm_result result = p->medium->write(&b->config, p->name, &p->meeting, p->why, sizeof p->why);
    return result == COMM_OK ? result : boot_fail(&b->config, result, "COMM_ADDRESS=%s: %s", b->config.address, p->why);
}

enum comm_result published_prepare(struct boot_star *b)
{
    struct boot_place *p = b->place;
    char why[200];

    if (!interface_address(b->config.env, p->host, why, sizeof why))
        return boot_fail(&b->config, COMM_ERR_CONFIG, "%s", why);
    if (!p->medium)
        return COMM_OK;
    base_copy_text(p->port, sizeof p->port, "0");
    if (b->boot.key || crypto_missing())
        return COMM_OK;
    if (b->config.env->random(b->config.env, p->meeting.key, sizeof p->meeting.key))
        return boot_fail(&b->config, COMM_ERR_SYSTEM, "no randomness for a secret");
    p->meeting.keyed = p->open = true;
    star_use_key(b, p->meeting.key, true);
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ the others */
enum comm_result published_contrary(const struct boot_star *b)
{
    return boot_fail(&b->config, COMM_ERR_AUTH, "rank 0 came without the secret that rank %d was given", b->config.rank);
}

/* Takes over the address, and the secret if there is one. Nothing of what was read before stays: that may have been an earlier run's. */
static void use_meeting(struct boot_star *b, const struct meeting *m)
{
    struct boot_place *p = b->place;

    b->job = m->job;
    p->contrary = m->keyed && p->given;
    p->open = p->permitted || m->keyed;
    if (m->keyed && !p->given)
        star_use_key(b, m->key, true);
    else if (!p->given)
        star_use_no_key(b);
    b->maybe_old = place_may_be_old(p);
    b->unsure = b->maybe_old && m->keyed && !p->given;
    base_copy_text(p->host, sizeof p->host, m->host);
    base_format(p->port, sizeof p->port, "%u", m->port);
    p->known = p->medium->of_one_job;
}

/* A file of another job is ignored until rank 0 replaces it. From a launcher's store the job's name is taken too, since such launchers need
 * not name their jobs. */
enum dialed published_read(struct boot_star *b, enum comm_result *result)
{
    struct boot_place *p = b->place;
    struct meeting *m = &p->meeting;
    enum comm_result read = p->medium->read(&b->config, p->name, m, p->why, sizeof p->why);

    if (read == COMM_ERR_TIMEOUT)
        return DIAL_LATER;
    if (read != COMM_OK) {
        *result = boot_fail(&b->config, read, "COMM_ADDRESS=%s: %s", b->config.address, p->why);
        return DIAL_NEVER;
    }
    if (m->job != b->job && !p->medium->of_one_job) {
        base_format(p->why, sizeof p->why, "it is another job's, or an earlier run's");
        return DIAL_LATER;
    }
    if (m->ranks != b->config.ranks) {
        base_format(p->why, sizeof p->why, "it is of a world of %d ranks, and this rank is of one of %d", m->ranks, b->config.ranks);
        if (!p->medium->of_one_job)
            return DIAL_LATER;
        *result = boot_fail(&b->config, COMM_ERR_AUTH, "what rank 0 has in %s%s: %s", p->medium->noun, p->name, p->why);
        return DIAL_NEVER; /* it is written once, and to ask again would be another barrier */
    }
    use_meeting(b, m);
    return DIAL_THERE;
}

bool published_moved(const struct boot_star *b)
{
    const struct boot_place *p = b->place;
    char why[MEETING_WHY];
    struct meeting now;
    bool moved = place_may_be_old(p) && p->medium->read(&b->config, p->name, &now, why, sizeof why) == COMM_OK &&
                 now.job == p->meeting.job && now.run != p->meeting.run;

    crypto_wipe(&now, sizeof now);
    return moved;
}

void published_doubt(const struct boot_star *b, enum comm_result result)
{
    const struct boot_place *p = b->place;
    const struct boot_config *c = &b->config;
    size_t at = c->error_text_bytes ? strlen(c->error_text) : 0;
    bool read = c->rank && place_may_be_old(p) && p->meeting.run;

    if (read && !b->unsure && (result == COMM_ERR_AUTH || result == COMM_ERR_CONFIG)) /* an unsure rank goes on only after a proof */
        base_append(c->error_text, c->error_text_bytes, &at, "; if an earlier run left %s%s, remove it", p->medium->noun, p->name);
}
