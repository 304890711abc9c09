/*
 * Frozen: every number and every layout that programs are compiled with. A line here changes only with a new major version; new fields and
 * numbers are added at the end of what they belong to, with a line of their own. Compiled as C11, C++11 and C++17; nothing runs.
 */
#include <commstream/comm.h>

#include <stddef.h>

#ifdef __cplusplus
#    define FROZEN(condition) static_assert(condition, #    condition)
#else
#    define FROZEN(condition) _Static_assert(condition, #    condition)
#endif
#define NUMBER(name, value) FROZEN((int)(name) == (value))
#define SIZE(type, bytes) FROZEN(sizeof(struct type) == (bytes))
#define AT(type, field, offset) FROZEN(offsetof(struct type, field) == (offset))

NUMBER(COMM_OK, 0);
NUMBER(COMM_PENDING, 1);
NUMBER(COMM_ERR_ARGUMENT, -1);
NUMBER(COMM_ERR_STATE, -2);
NUMBER(COMM_ERR_UNSUPPORTED, -3);
NUMBER(COMM_ERR_FULL, -4);
NUMBER(COMM_ERR_MEMORY, -5);
NUMBER(COMM_ERR_SYSTEM, -6);
NUMBER(COMM_ERR_CONFIG, -7);
NUMBER(COMM_ERR_AUTH, -8);
NUMBER(COMM_ERR_TIMEOUT, -9);
NUMBER(COMM_ERR_PEER, -10);
NUMBER(COMM_ERR_MISMATCH, -11);
NUMBER(COMM_ERR_TRUNCATED, -12);
NUMBER(COMM_ERR_CANCELLED, -13);
NUMBER(COMM_ERR_ABORTED, -14);
NUMBER(COMM_ERR_REVOKED, -15);
NUMBER(COMM_ERR_DEPENDENCY, -16);
NUMBER(COMM_ERR_BACKEND, -17);
NUMBER(COMM_ERR_CORRUPT, -18);
NUMBER(COMM_ERR_CLOSED, -19);
NUMBER(COMM_ERR_FORKED, -20);
NUMBER(COMM_ERR_REFUSED, -21);
NUMBER(COMM_ERR_DEADLOCK, -22);
NUMBER(COMM_ERR_ABANDONED, -23);

NUMBER(COMM_BYTE, 1);
NUMBER(COMM_BOOL, 2);
NUMBER(COMM_I8, 8);
NUMBER(COMM_I16, 9);
NUMBER(COMM_I32, 10);
NUMBER(COMM_I64, 11);
NUMBER(COMM_U8, 16);
NUMBER(COMM_U16, 17);
NUMBER(COMM_U32, 18);
NUMBER(COMM_U64, 19);
NUMBER(COMM_F8E4M3, 24);
NUMBER(COMM_F8E5M2, 25);
NUMBER(COMM_F16, 26);
NUMBER(COMM_BF16, 27);
NUMBER(COMM_F32, 28);
NUMBER(COMM_F64, 29);
NUMBER(COMM_C64, 40);
NUMBER(COMM_C128, 41);
NUMBER(COMM_F32_INDEX, 48);
NUMBER(COMM_F64_INDEX, 49);
NUMBER(COMM_I32_INDEX, 50);
NUMBER(COMM_I64_INDEX, 51);
NUMBER(COMM_TYPE_INT, 0x7fffffff);
NUMBER(COMM_SUM, 1);
NUMBER(COMM_PROD, 2);
NUMBER(COMM_MIN, 3);
NUMBER(COMM_MAX, 4);
NUMBER(COMM_AVG, 5);
NUMBER(COMM_BAND, 6);
NUMBER(COMM_BOR, 7);
NUMBER(COMM_BXOR, 8);
NUMBER(COMM_LAND, 9);
NUMBER(COMM_LOR, 10);
NUMBER(COMM_LXOR, 11);
NUMBER(COMM_MINLOC, 12);
NUMBER(COMM_MAXLOC, 13);
NUMBER(COMM_REPLACE, 14);
NUMBER(COMM_NOOP, 15);
NUMBER(COMM_PROGRESS_AUTO, 0);
NUMBER(COMM_PROGRESS_CALLER, 1);
NUMBER(COMM_PROGRESS_THREAD, 2);
NUMBER(COMM_NOTIFY_DEFAULT, 0);
NUMBER(COMM_NOTIFY_ANY, 1);
NUMBER(COMM_NOTIFY_PROGRESS, 2);
NUMBER(COMM_ORDER_DEFAULT, 0);
NUMBER(COMM_ORDER_FIXED, 1);
NUMBER(COMM_ORDER_FREE, 2);
NUMBER(COMM_PLACE_NODE, 1);
NUMBER(COMM_PLACE_NUMA, 2);
NUMBER(COMM_PLACE_DEVICE, 3);
NUMBER(COMM_PLACEMENT_DEFAULT, 0);
NUMBER(COMM_PLACEMENT_FIRST_TOUCH, 1);
NUMBER(COMM_PLACEMENT_INTERLEAVE, 2);

NUMBER(COMM_NO_COLOR, -1);
NUMBER(COMM_ANY_PEER, -1);
FROZEN(COMM_ANY_TAG == UINT32_MAX);
FROZEN(COMM_NO_INDEX == SIZE_MAX);
FROZEN(COMM_ROOT_FAILED == SIZE_MAX);
FROZEN(COMM_FOREVER == INT64_MAX);
FROZEN(COMM_DEFAULT_TIMEOUT == -1);
FROZEN(COMM_INFO_BUFFERS_HELD == 1);
FROZEN(COMM_INFO_STAGED == 2);

FROZEN(sizeof(enum comm_result) == sizeof(int));
FROZEN(sizeof(enum comm_type) == sizeof(int));
FROZEN(sizeof(comm_op) == 4);

/* Pointers and sizes of eight bytes. */
#if UINTPTR_MAX == UINT64_MAX
SIZE(comm_request, 16);
AT(comm_request, comm, 0);
AT(comm_request, ticket, 8);

SIZE(comm_status, 16);
AT(comm_status, peer, 0);
AT(comm_status, tag, 4);
AT(comm_status, bytes, 8);

SIZE(comm_request_info, 96);
AT(comm_request_info, size, 0);
AT(comm_request_info, result, 8);
AT(comm_request_info, flags, 12);
AT(comm_request_info, sequence, 16);
AT(comm_request_info, bytes, 24);
AT(comm_request_info, queued_ns, 32);
AT(comm_request_info, started_ns, 40);
AT(comm_request_info, completed_ns, 48);
AT(comm_request_info, algorithm, 56);
AT(comm_request_info, waited_for, 88);

SIZE(comm_f32_index, 8);
AT(comm_f32_index, value, 0);
AT(comm_f32_index, index, 4);

SIZE(comm_f64_index, 16);
AT(comm_f64_index, value, 0);
AT(comm_f64_index, index, 8);

SIZE(comm_op_options, 32);
AT(comm_op_options, size, 0);
AT(comm_op_options, name, 8);
AT(comm_op_options, element_bytes, 16);
AT(comm_op_options, ordered, 24);
AT(comm_op_options, reserved, 28);

SIZE(comm_id, 128);
AT(comm_id, bytes, 0);

SIZE(comm_config, 160);
AT(comm_config, size, 0);
AT(comm_config, rank, 8);
AT(comm_config, ranks, 12);
AT(comm_config, backend, 16);
AT(comm_config, device, 24);
AT(comm_config, address, 32);
AT(comm_config, id, 40);
AT(comm_config, exchange, 48);
AT(comm_config, exchange_arg, 56);
AT(comm_config, engine_of, 64);
AT(comm_config, secret, 72);
AT(comm_config, secret_bytes, 80);
AT(comm_config, progress, 88);
AT(comm_config, notify, 92);
AT(comm_config, order, 96);
AT(comm_config, log_level, 100);
AT(comm_config, open_timeout_ns, 104);
AT(comm_config, operation_timeout_ns, 112);
AT(comm_config, options, 120);
AT(comm_config, log, 128);
AT(comm_config, log_arg, 136);
AT(comm_config, error_text, 144);
AT(comm_config, error_text_bytes, 152);

SIZE(comm_options, 48);
AT(comm_options, size, 0);
AT(comm_options, name, 8);
AT(comm_options, priority, 16);
AT(comm_options, order, 20);
AT(comm_options, operation_timeout_ns, 24);
AT(comm_options, stream, 32);
AT(comm_options, options, 40);

SIZE(comm_info, 352);
AT(comm_info, size, 0);
AT(comm_info, backend, 8);
AT(comm_info, launcher, 24);
AT(comm_info, host, 40);
AT(comm_info, name, 104);
AT(comm_info, library, 136);
AT(comm_info, slurm_job, 232);
AT(comm_info, rank, 264);
AT(comm_info, ranks, 268);
AT(comm_info, node, 272);
AT(comm_info, nodes, 276);
AT(comm_info, local_rank, 280);
AT(comm_info, local_ranks, 284);
AT(comm_info, cpus, 288);
AT(comm_info, homogeneous, 292);
AT(comm_info, device_buffers, 296);
AT(comm_info, stream_wait, 300);
AT(comm_info, graph_capture, 304);
AT(comm_info, fixed_order, 308);
AT(comm_info, device_order, 312);
AT(comm_info, reserved, 316);
AT(comm_info, queue_max, 320);
AT(comm_info, window, 328);
AT(comm_info, inline_bytes, 336);
AT(comm_info, memory_bytes, 344);

SIZE(comm_peer_info, 160);
AT(comm_peer_info, size, 0);
AT(comm_peer_info, node, 8);
AT(comm_peer_info, local, 12);
AT(comm_peer_info, host, 16);
AT(comm_peer_info, wire, 80);
AT(comm_peer_info, address, 96);

SIZE(comm_gradient, 24);
AT(comm_gradient, data, 0);
AT(comm_gradient, count, 8);
AT(comm_gradient, type, 16);
AT(comm_gradient, reserved, 20);

SIZE(comm_bucket_options, 32);
AT(comm_bucket_options, size, 0);
AT(comm_bucket_options, bytes, 8);
AT(comm_bucket_options, first_bytes, 16);
AT(comm_bucket_options, op, 24);
AT(comm_bucket_options, adopt, 28);

SIZE(comm_window_options, 24);
AT(comm_window_options, size, 0);
AT(comm_window_options, base, 8);
AT(comm_window_options, placement, 16);
AT(comm_window_options, signals, 20);

SIZE(comm_error, 600);
AT(comm_error, size, 0);
AT(comm_error, result, 8);
AT(comm_error, rank, 12);
AT(comm_error, peer, 16);
AT(comm_error, system_errno, 20);
AT(comm_error, sequence, 24);
AT(comm_error, backend_code, 32);
AT(comm_error, reserved, 36);
AT(comm_error, operation, 40);
AT(comm_error, cause, 64);
AT(comm_error, text, 88);

SIZE(comm_backend_info, 264);
AT(comm_backend_info, size, 0);
AT(comm_backend_info, name, 8);
AT(comm_backend_info, version, 24);
AT(comm_backend_info, missing, 88);
AT(comm_backend_info, available, 248);
AT(comm_backend_info, threads, 252);
AT(comm_backend_info, fixed_order, 256);
AT(comm_backend_info, device_buffers, 260);

SIZE(comm_algorithm_info, 200);
AT(comm_algorithm_info, size, 0);
AT(comm_algorithm_info, ranks_min, 8);
AT(comm_algorithm_info, ranks_max, 12);
AT(comm_algorithm_info, bounded, 16);
AT(comm_algorithm_info, over_hosts, 20);
AT(comm_algorithm_info, collective, 24);
AT(comm_algorithm_info, name, 48);
AT(comm_algorithm_info, help, 72);

SIZE(comm_option_info, 192);
AT(comm_option_info, size, 0);
AT(comm_option_info, key, 8);
AT(comm_option_info, environment, 16);
AT(comm_option_info, type, 24);
AT(comm_option_info, default_text, 32);
AT(comm_option_info, unit, 40);
AT(comm_option_info, help, 48);
AT(comm_option_info, also, 56);
AT(comm_option_info, environment_only, 64);
AT(comm_option_info, values, 68);

SIZE(comm_stats, 64);
AT(comm_stats, size, 0);
AT(comm_stats, operations, 8);
AT(comm_stats, messages, 16);
AT(comm_stats, bytes_out, 24);
AT(comm_stats, bytes_in, 32);
AT(comm_stats, queue_high_water, 40);
AT(comm_stats, network_out, 48);
AT(comm_stats, network_in, 56);

SIZE(comm_call, 40);
AT(comm_call, size, 0);
AT(comm_call, collective, 8);
AT(comm_call, n, 16);
AT(comm_call, type, 24);
AT(comm_call, op, 28);
AT(comm_call, root, 32);
AT(comm_call, ranks, 36);
#endif
