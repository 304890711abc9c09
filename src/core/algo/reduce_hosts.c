/*
 * reduce/hosts: node by node (hosts_reduce.c); a rank that finishes a slice exposes it to the root.
 *
 * With two hosts, the ranks of the root's host finish all slices: the other host sends n bytes, and nothing goes back.
 * With more hosts, all hosts except the root's finish a share each. So the root's host sends n bytes of partial results
 * and receives n bytes of finished ones, where partial results of all other hosts would be n (H - 1); each other host
 * sends n and receives n. This counts nodes (subtrees of T) as hosts, as in hosts_reduce.c.
 *
 *   lane 3  at the root, for k: VIEW <- each finisher x #FINISHED LAND out[x].k
 *
 * A finished chunk stays in one scratch item until the wire has its bytes, as in reduce/slices.
 */
#include "algo/hosts.h"

/* Assigns an item to each rank of the hosts that finish slices; returns the number of items. */
static int32_t deal_items(const struct build *b, struct places *p)
{
    int32_t items = 0, home = p->host.of[b->spec.root];
    bool at_home = p->host.count <= 2;

    for (int32_t r = 0; r < b->spec.size; r++)
        p->item[r] = (p->host.of[r] == home) == at_home ? items++ : -1;
    return items;
}

static void land_lane_of(struct build *b, const struct places *p)
{
    int32_t size = b->spec.size, rank = b->spec.rank;

    build_lane(b);
    build_loop_chunks(b);
    for (int32_t d = 1; d < size; d++) {
        int32_t from = (rank + d) % size;
        struct comm_ref slice = ref_slice(BUF_OUT, p->item[from]);
        if (p->item[from] >= 0)
            BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = HOSTS_FINISHED, .peer = build_peer(b, from),
                       .npeers = 1, .dst = slice, .src = slice);
    }
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *reduce_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    struct places places = {0};
    if (!b || !places_find(b, &places))
        return build_end(b);
    bool at_root = spec->rank == spec->root;
    int32_t items = deal_items(b, &places), item = places.item[spec->rank];
    struct comm_ref kept = ref_scratch(0, ref_slice(BUF_IN, item));
    b->program.slices = (uint16_t)items;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.scratch = at_root || item < 0 ? 0 : 1;
    struct comm_step after = {.code = STEP_EXPOSE,
                              .flags = STEP_CHUNKED,
                              .edge = HOSTS_FINISHED,
                              .peer = build_peer(b, spec->root),
                              .npeers = 1,
                              .bump = HOSTS_COUNT_SHOWN,
                              .src = kept};
    if (at_root)
        after.npeers = 0;
    hosts_reduce(b, &(struct hosts_reduce){.places = &places,
                                           .unit = UNIT_SLICE,
                                           .dst = at_root ? ref_slice(BUF_OUT, item) : kept,
                                           .counts_shown = !at_root,
                                           .after = after});
    build_edge(b, HOSTS_FINISHED, 0);
    if (at_root)
        land_lane_of(b, &places);
    return build_end(b);
}
