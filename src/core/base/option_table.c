/* The table of options, and functions that describe its rows. Nothing here reads a value. */
#include "base/option.h"
#include "base/format.h"

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)
#define NS_PER_DAY (86400 * NS_PER_S)
#define AT(field) .offset = (uint32_t)offsetof(struct base_options, field), .room = (uint32_t)sizeof((struct base_options *)0)->field

const struct base_option base_option_table[] = {
    {.key = "backend",
     .environment = "COMM_BACKEND",
     .also = "COBRE_COMM_BACKEND",
     .type = OPTION_TEXT,
     AT(backend),
     .default_text = "auto",
     .help = "the transport: auto, local, shm, tcp, shm+tcp, mpi, shm+mpi, nccl, cuda"},
    {.key = "progress",
     .environment = "COMM_PROGRESS",
     .type = OPTION_CHOICE,
     AT(progress),
     .choices = "auto|caller|thread",
     .default_text = "auto",
     .help = "who makes progress: caller (only inside calls), thread (a progress thread), or auto (the thread if there are several "
             "ranks and the host has more usable CPUs than ranks)"},
    {.key = "log",
     .environment = "COMM_LOG",
     .type = OPTION_CHOICE,
     AT(log),
     .choices = "off|error|warning|info|debug|trace",
     .default_text = "warning",
     .help = "messages on standard error up to this level; info logs once what was chosen and why"},
    {.key = "window",
     .environment = "COMM_WINDOW",
     .type = OPTION_NUMBER,
     .flags = OPTION_POWER_OF_TWO,
     AT(window),
     .default_text = "64",
     .min = 4,
     .max = 1024,
     .unit = "operations",
     .help = "operations of one communicator that may run at once; rank 0's value is used"},
    {.key = "queue",
     .environment = "COMM_QUEUE",
     .type = OPTION_NUMBER,
     AT(queue),
     .default_text = "65536",
     .min = 16,
     .max = 1 << 24,
     .unit = "operations",
     .help = "pieces of work of one communicator that may be queued, and so many messages, rounded up to a power of two; one more returns "
             "COMM_ERR_FULL"},
    {.key = "order",
     .environment = "COMM_ORDER",
     .type = OPTION_CHOICE,
     AT(order),
     .choices = "default|fixed|free",
     .default_text = "default",
     .firm = OPTION_ORDER_FIXED,
     .help = "order of reductions: fixed gives the same bits on every backend; free may be faster; default is fixed, except for mpi "
             "and nccl chosen by name"},
    {.key = "order_block",
     .environment = "COMM_ORDER_BLOCK",
     .type = OPTION_NUMBER,
     AT(order_block),
     .default_text = "0",
     .max = 16,
     .unit = "ranks",
     .help = "reduces first within blocks of this many ranks, for hosts of 3 or 6; the same bits on every layout of that block; "
             "rank 0's value is used; 0: no blocks"},
    {.key = "algorithm",
     .environment = "COMM_ALGORITHM",
     .also = "COMM_ALGO",
     .type = OPTION_TEXT,
     AT(algorithm),
     .default_text = "",
     .help = "algorithms by name for some collectives: allreduce:slices,broadcast:pipeline; rank 0's value is used"},
    {.key = "check",
     .environment = "COMM_CHECK",
     .type = OPTION_TEXT,
     AT(check),
     .default_text = "",
     .help = "checks of the program, at some cost, separated by commas: calls (ranks must call from the same places), buffers "
             "(inputs must not change during an operation), rendezvous (sends wait for their receive); rank 0's value is used"},
    {.key = "machine",
     .environment = "COMM_MACHINE",
     .type = OPTION_TEXT,
     AT(machine),
     .default_text = "",
     .help = "a file of this machine's parameters, written by comm-perf --fit; algorithms are then chosen by predicted time; rank 0 "
             "reads it"},
    {.key = "trace_dir",
     .environment = "COMM_TRACE_DIR",
     .type = OPTION_TEXT,
     AT(trace_dir),
     .default_text = "",
     .help = "an existing folder: when a communicator fails, each of its ranks writes its last 2,000 operations to a file in it, as "
             "comm_trace_dump does; empty: no file"},
    {.key = "open_timeout",
     .environment = "COMM_OPEN_TIMEOUT",
     .also = "COBRE_TCP_CONNECT_TIMEOUT_MS",
     .also_unit = "ms",
     .type = OPTION_TIME,
     AT(open_timeout_ns),
     .default_text = "60s",
     .min = NS_PER_MS,
     .max = NS_PER_DAY,
     .unit = "seconds",
     .help = "time for all ranks to meet"},
    {.key = "operation_timeout",
     .environment = "COMM_OPERATION_TIMEOUT",
     .also = "COBRE_TCP_TIMEOUT_SECS",
     .type = OPTION_TIME,
     AT(operation_timeout_ns),
     .default_text = "1800s",
     .min = NS_PER_MS,
     .max = 365 * NS_PER_DAY,
     .unit = "seconds",
     .help = "time for an operation after its start; then its communicator fails"},
    {.key = "peer_timeout",
     .environment = "COMM_PEER_TIMEOUT",
     .type = OPTION_TIME,
     AT(peer_timeout_ns),
     .default_text = "30s",
     .min = NS_PER_S,
     .max = NS_PER_DAY,
     .unit = "seconds",
     .help = "time after which a stopped process is reported as failed; a sixth of it causes a warning; rank 0's value is used"},
    {.key = "link_timeout",
     .environment = "COMM_LINK_TIMEOUT",
     .type = OPTION_TIME,
     AT(link_timeout_ns),
     .default_text = "3s",
     .min = NS_PER_S / 10,
     .max = NS_PER_DAY,
     .unit = "seconds",
     .help = "time after which a host that acknowledges nothing is reported as failed, at most peer_timeout; rank 0's value is used"},
    {.key = "isa",
     .environment = "COMM_ISA",
     .type = OPTION_CHOICE,
     AT(isa),
     .choices = "auto|scalar|avx2|avx512",
     .default_text = "auto",
     .help = "instructions used by reductions; the results have the same bits"},
    {.key = "spin",
     .environment = "COMM_SPIN",
     .type = OPTION_TIME,
     AT(spin_ns),
     .default_text = "50us",
     .max = NS_PER_S,
     .unit = "seconds",
     .help = "how long a wait keeps its CPU busy, if this host has at least as many CPUs as ranks"},
    {.key = "yield",
     .environment = "COMM_YIELD",
     .type = OPTION_TIME,
     AT(yield_ns),
     .default_text = "100us",
     .max = NS_PER_S,
     .unit = "seconds",
     .help = "how long a wait then yields its CPU to others before it sleeps; 32 times as long while MPI or NCCL may be at work"},
    {.key = "chunk",
     .environment = "COMM_CHUNK",
     .type = OPTION_BYTES,
     .flags = OPTION_POWER_OF_TWO | OPTION_ZERO,
     AT(chunk),
     .default_text = "0",
     .min = 4096,
     .max = 65536,
     .unit = "bytes",
     .help = "longest piece of a pipelined transfer; 0: the transport's own"},
    {.key = "minimal",
     .environment = "COMM_MINIMAL",
     .type = OPTION_BOOL,
     AT(minimal),
     .default_text = "no",
     .help = "sets every limit to its minimum, for tests"},
    {.key = "cpus",
     .environment = "COMM_CPUS",
     .type = OPTION_NUMBER,
     AT(cpus),
     .default_text = "0",
     .max = 65536,
     .unit = "CPUs",
     .help = "CPUs that this process may use; 0: from affinity and cgroup quota"},
    {.key = "shm_segment_bytes",
     .environment = "COMM_SHM_SEGMENT_BYTES",
     .type = OPTION_BYTES,
     .flags = OPTION_ENVIRONMENT_ONLY | OPTION_POWER_OF_TWO,
     .default_text = "16G",
     .min = 64 << 10,
     .max = INT64_C(1) << 40,
     .unit = "bytes",
     .help = "address space that a rank shares over shm; memory is taken only as it is used; equal on all ranks"},
    {.key = "shm_death",
     .environment = "COMM_SHM_DEATH",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "pidfd|socket",
     .default_text = "pidfd",
     .help = "how shm detects the end of a process; a kernel without pidfd uses a socket"},
    {.key = "tcp_insecure",
     .environment = "COMM_TCP_INSECURE",
     .type = OPTION_BOOL,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "no",
     .help = "lets ranks meet at addresses other than loopback without a secret, for networks where every machine is trusted"},
    {.key = "tcp_seal",
     .environment = "COMM_TCP_SEAL",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "auto|yes|no",
     .default_text = "auto",
     .help = "encrypts and authenticates all traffic between ranks with keys made from the job's secret; auto: if there is a secret "
             "and an address other than loopback; equal on all ranks"},
    {.key = "tcp_cipher",
     .environment = "COMM_TCP_CIPHER",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "auto|aes|chacha",
     .default_text = "auto",
     .help = "cipher that this rank prefers: AES-256-GCM or ChaCha20-Poly1305; two ranks use AES if both prefer it; auto: AES if "
             "the CPU has instructions for it"},
    {.key = "tcp_crc",
     .environment = "COMM_TCP_CRC",
     .type = OPTION_BOOL,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "no",
     .help = "adds a CRC-32C to all traffic between ranks, in addition to TCP's 16-bit checksum; equal on all ranks"},
    {.key = "tcp_poller",
     .environment = "COMM_TCP_POLLER",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "auto|epoll|io_uring",
     .default_text = "auto",
     .help = "how sockets are polled; auto is epoll; io_uring is an error if the kernel or a container refuses it"},
    {.key = "tcp_links",
     .environment = "COMM_TCP_LINKS",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "auto|all|needed",
     .default_text = "auto",
     .help = "which ranks are connected when a world opens: all pairs, or only a few, and the others when needed; auto: all pairs "
             "up to 32 ranks; equal on all ranks"},
    {.key = "tcp_interface",
     .environment = "COMM_SOCKET_IFNAME",
     .also = "NCCL_SOCKET_IFNAME",
     .type = OPTION_TEXT,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "",
     .help = "the local address at which ranks of other hosts reach this one (also GLOO_SOCKET_IFNAME): interface names or prefixes "
             "with commas, = before exact names, ^ to exclude; or networks like 10.0.0.0/8; empty: the address that leads to rank 0"},
    {.key = "secret_file",
     .environment = "COMM_SECRET_FILE",
     .type = OPTION_TEXT,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "",
     .help = "a file of mode 600 that holds the job's secret, by which ranks on a network recognize each other; comm-info "
             "--new-secret makes one; COMM_SECRET holds the secret itself"},
    {.key = "module_path",
     .environment = "COMM_MODULE_PATH",
     .type = OPTION_TEXT,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "",
     .help = "folders, separated by colons, that are searched first for modules (mpi, cuda); ignored in set-user-id programs"},
    {.key = "nccl_min_ctas",
     .environment = "COMM_NCCL_MIN_CTAS",
     .type = OPTION_NUMBER,
     AT(nccl_min_ctas),
     .default_text = "0",
     .max = 64,
     .unit = "blocks",
     .help = "thread blocks (CTAs) that NCCL uses at least for an operation; equal on all ranks; 0: NCCL's own choice"},
    {.key = "nccl_max_ctas",
     .environment = "COMM_NCCL_MAX_CTAS",
     .type = OPTION_NUMBER,
     AT(nccl_max_ctas),
     .default_text = "0",
     .max = 64,
     .unit = "blocks",
     .help = "thread blocks (CTAs) that NCCL uses at most for an operation, so that kernels of the program keep the others; equal on all "
             "ranks; 0: NCCL's own choice"},
    {.key = "nccl_cga_cluster_size",
     .environment = "COMM_NCCL_CGA_CLUSTER_SIZE",
     .type = OPTION_NUMBER,
     AT(nccl_cluster),
     .default_text = "0",
     .max = 8,
     .unit = "blocks",
     .help = "thread blocks in a cluster of NCCL's kernels, on devices that have clusters; equal on all ranks; 0: NCCL's own choice"},
    {.key = "nccl_split_share",
     .environment = "COMM_NCCL_SPLIT_SHARE",
     .type = OPTION_BOOL,
     AT(nccl_split_share),
     .default_text = "no",
     .help = "the two NCCL communicators of each communicator share NCCL's resources (splitShare): less memory of the device; equal on "
             "all ranks"},
    {.key = "nccl_fallback",
     .environment = "COMM_NCCL_FALLBACK",
     .type = OPTION_BOOL,
     AT(nccl_fallback),
     .default_text = "no",
     .help =
         "where NCCL is missing on some rank, does not work, differs from rank 0's, or cannot connect the ranks, and where two ranks have "
         "one device, a world of backend nccl opens all the same: device buffers are staged over shared memory inside a host and TCP "
         "between hosts, and a warning says so once; equal on all ranks"},
    {.key = "mpi_threads",
     .environment = "COMM_MPI_THREADS",
     .type = OPTION_CHOICE,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .choices = "multiple|serialized|funneled",
     .default_text = "multiple",
     .help = "thread level at which the library initializes MPI if the program has not; below multiple there is no progress thread, "
             "only the world uses MPI, and between hosts for nothing but MPI's own collectives"},
    {.key = "mpi_library",
     .environment = "COMM_MPI_LIBRARY",
     .type = OPTION_TEXT,
     .flags = OPTION_ENVIRONMENT_ONLY,
     .default_text = "",
     .help =
         "the file of an MPI library with the standard ABI (libmpi_abi.so.1), which backend mpi then uses; none: the MPI of this process "
         "or of its launcher"},
};
const uint32_t base_option_count = sizeof base_option_table / sizeof *base_option_table;
_Static_assert(sizeof base_option_table / sizeof *base_option_table <= OPTION_COUNT_MAX, "base_options.from has a place for every row");

const struct base_option *base_option_find(const char *key)
{
    for (uint32_t i = 0; i < base_option_count; i++)
        if (base_equal(base_option_table[i].key, key))
            return &base_option_table[i];
    return NULL;
}

const char *base_option_type_name(enum option_type type)
{
    static const char *const names[] = {
        [OPTION_TEXT] = "text",     [OPTION_NUMBER] = "number", [OPTION_BOOL] = "bool",
        [OPTION_CHOICE] = "choice", [OPTION_TIME] = "time",     [OPTION_BYTES] = "bytes",
    };
    return names[type];
}

/* Uses the largest unit that divides the time, so that the text can be parsed again without loss. */
static void append_time(char *text, size_t room, size_t *at, int64_t ns)
{
    static const struct {
        int64_t ns;
        const char *name;
    } units[] = {{60 * 60 * NS_PER_S, "h"}, {60 * NS_PER_S, "m"}, {NS_PER_S, "s"}, {NS_PER_MS, "ms"}, {NS_PER_US, "us"}, {1, "ns"}};
    size_t i = 0;

    if (ns == 0) {
        base_append(text, room, at, "0");
        return;
    }
    while (ns % units[i].ns)
        i++;
    base_append(text, room, at, "%lld%s", (long long)(ns / units[i].ns), units[i].name);
}

static void append_bytes(char *text, size_t room, size_t *at, int64_t bytes)
{
    static const char *const units[] = {"", "K", "M", "G"};
    size_t i = 0;

    for (; bytes && bytes % 1024 == 0 && i < 3; i++)
        bytes /= 1024;
    base_append(text, room, at, "%lld%s", (long long)bytes, units[i]);
}

static void append_amount(const struct base_option *row, char *text, size_t room, size_t *at, int64_t amount)
{
    if (row->type == OPTION_TIME)
        append_time(text, room, at, amount);
    else if (row->type == OPTION_BYTES)
        append_bytes(text, room, at, amount);
    else
        base_append(text, room, at, "%lld", (long long)amount);
}

static void append_range(const struct base_option *row, char *text, size_t room, size_t *at)
{
    base_append(text, room, at, "%s%s from ", row->flags & OPTION_ZERO ? "0 or " : "",
                row->flags & OPTION_POWER_OF_TWO ? "a power of two"
                : row->type == OPTION_TIME       ? "a time"
                : row->type == OPTION_BYTES      ? "a number of bytes"
                                                 : "a whole number");
    append_amount(row, text, room, at, row->min);
    base_append(text, room, at, " to ");
    append_amount(row, text, room, at, row->max);
    if (row->type == OPTION_TIME)
        base_append(text, room, at, " (units: ns us ms s m h; none: seconds)");
}

void base_option_expected(const struct base_option *row, char *text, size_t room)
{
    size_t at = 0;

    if (room)
        text[0] = 0;
    if (row->type == OPTION_TEXT) {
        if (row->room)
            base_append(text, room, &at, "at most %u characters", row->room - 1);
        else
            base_append(text, room, &at, "text");
    } else if (row->type == OPTION_BOOL) {
        base_append(text, room, &at, "yes or no");
    } else if (row->type == OPTION_CHOICE) {
        base_append(text, room, &at, "one of ");
        for (const char *c = row->choices; *c; c++)
            base_append(text, room, &at, *c == '|' ? ", " : "%c", *c);
    } else {
        append_range(row, text, room, &at);
    }
}
